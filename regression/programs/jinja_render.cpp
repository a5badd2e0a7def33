// SPDX-License-Identifier: BSD-3-Clause
// Renders templates for regression/jinja.sh. Each line of standard input is a JSON object with `template`, and with
// `variables` or with a conversation as `line`, `tokens` and `prompt` (true: with the generation prompt). Each line of
// standard output is the JSON of the text, or null if the template refuses.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "src/data/chat_input.hpp"
#include "src/jinja/json_value.hpp"
#include "src/jinja/problem.hpp"
#include "src/jinja/template.hpp"

namespace {

using namespace gyr;

void set(jinja::Variables& variables, const jinja::Value& key, const jinja::Value& value) {
  const std::string& name = key.string()->text.bytes();
  std::erase_if(variables, [&](const auto& v) { return v.first == name; });
  variables.emplace_back(name, value);
}

jinja::Variables variables_of(const jinja::Dict& row) {
  jinja::Variables variables;
  if (const jinja::Value* given = row.find("variables")) {
    for (const auto& [key, value] : given->dict()->items) set(variables, key, value);
    return variables;
  }
  const ChatInput input = read_chat_input(row.find("line")->string()->text.bytes(), "messages", "role", "content");
  for (const char* absent : {"tools", "documents"}) set(variables, jinja::text_value(absent), {jinja::None{}});
  for (const auto& [key, value] : row.find("tokens")->dict()->items) set(variables, key, value);
  for (const auto& [name, value] : input.variables) set(variables, jinja::text_value(name), value);
  variables.emplace_back("messages", jinja::list_value(input.messages));
  variables.emplace_back("add_generation_prompt", *row.find("prompt"));
  return variables;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json out;
    try {
      const jinja::Value row = jinja::value_of_json(line, {1});
      const jinja::Template source(row.dict()->find("template")->string()->text.bytes(), "template");
      out = source.render(variables_of(*row.dict()), 1722000000, line.size()).bytes();
    } catch (const jinja::Problem& problem) {
      if (std::string_view(problem.what()).find("not supported") != std::string_view::npos) out = {{"unsupported", problem.what()}};
    } catch (const Error& error) {
      if (std::string_view(error.what()).find("not supported") != std::string_view::npos) out = {{"unsupported", error.what()}};
    }
    std::printf("%s\n", out.dump().c_str());
  }
}
