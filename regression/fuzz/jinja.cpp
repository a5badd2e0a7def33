// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target for chat templates. The input is the template; an optional second part after a zero byte is the JSON line
// of the conversation. Any template is refused with Exit::data, renders, or fails with a problem. Rendered text has an
// origin for each byte.
#include <cstdint>
#include <cstdlib>

#include "kernels/base/error.hpp"
#include "src/data/chat_input.hpp"
#include "src/jinja/problem.hpp"
#include "src/jinja/template.hpp"
#include "src/tokenizer/utf8.hpp"

namespace {

using namespace gyr;

constexpr std::string_view usual = R"({"messages": [{"role": "system", "content": " be\nbrief "}, {"role": "user", "content": "h\u00e9 <|x|>"},
{"role": "assistant", "content": "<think>\na</think>b", "tool_calls": [{"id": "123456789", "type": "function", "function": {"name": "f", "arguments":
{"x": [1, 2.5, null, true]}}}]}, {"role": "tool", "content": "4"}, {"role": "user", "content": [{"type": "text", "text": "T"}]}],
"tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "array",
"items": {"type": "number"}}}, "required": ["x"]}}}]})";

void check(const jinja::Text& text) {
  if (valid_utf8_prefix(text.bytes()) != text.size()) std::abort();
  std::size_t end = 0;
  for (const auto& run : text.runs()) {
    if (run.end <= end) std::abort();
    end = run.end;
  }
  if (end != text.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(all.find('\0'), all.size());
  const std::string_view line = zero < all.size() ? all.substr(zero + 1) : usual;
  try {
    const jinja::Template source(std::string(all.substr(0, zero)), "input");
    const ChatInput input = read_chat_input(line, "messages", "role", "content");
    jinja::Variables variables = input.variables;
    variables.emplace_back("messages", jinja::list_value(input.messages));
    variables.emplace_back("add_generation_prompt", jinja::Value{true});
    variables.emplace_back("bos_token", jinja::text_value("<s>"));
    check(source.render(variables, 1722000000, line.size()));
  } catch (const Error& error) {
    if (error.code != Exit::data || std::string_view(error.what()).size() > 2000) std::abort();
  } catch (const jinja::Problem& problem) {
    if (std::string_view(problem.what()).size() > 3000) std::abort();
  }
  return 0;
}
