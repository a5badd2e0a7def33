// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/companions.hpp"

#include <fstream>
#include <iterator>

#include "src/deck/yaml.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/json.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

constexpr std::uintmax_t largest_companion = std::uintmax_t(1) << 20;
const char *const jinja_name = "chat_template.jinja", *const template_name = "chat_template.json", *const map_name = "special_tokens_map.json";

std::string place(const std::string& origin, const std::string& name) { return (fs::path(origin) / name).string(); }

// Parses a companion file as a JSON object; returns an empty object if there is no such file.
json object_in(const Companions& companions, const std::string& name, const std::string& origin) {
  const auto file = companions.find(name);
  if (file == companions.end()) return json::object();
  json object = parse_json(file->second, place(origin, name));
  require(object.is_object(), Exit::data, "{}: is not a JSON object", place(origin, name));
  return object;
}

std::string text_of(const json& value) { return shown(value.dump(-1, ' ', true).substr(0, 60)); }

std::vector<Index> end_tokens_of(const json& ends, const std::string& file) {
  std::vector<Index> tokens;
  const json list = ends.is_array() ? ends : json::array({ends});
  require(list.size() <= 1024, Exit::data, "{}: eos_token_id lists {} tokens; the maximum is 1024", file, list.size());
  for (const json& x : list) {
    const bool token = x.is_number_unsigned() && x.get<std::uint64_t>() < (std::uint64_t(1) << 31);
    require(token, Exit::data, "{}: eos_token_id is {}, which is neither a token id nor a list of token ids", file, text_of(ends));
    tokens.push_back(x.get<Index>());
  }
  return tokens;
}

// A special token in these files is a string, or an object with the string under "content".
std::optional<std::string> token_in(const json& config, const char* name) {
  const json value = config.value(name, json());
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) return value["content"].get<std::string>();
  return std::nullopt;
}

// Chat template in a value of tokenizer_config.json or chat_template.json. Several templates are a list of {"name",
// "template"} or an object by name; the one named "default" is taken.
std::optional<std::string> template_in(const json& value, const std::string& file) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("default") && value["default"].is_string()) return value["default"].get<std::string>();
  if (value.is_array())
    for (const json& entry : value)
      if (entry.is_object() && entry.value("name", json()) == "default" && entry.value("template", json()).is_string())
        return entry["template"].get<std::string>();
  fail(Exit::data, "{}: chat_template is neither a string nor a set of templates with one named \"default\"", file);
}

}  // namespace

const std::vector<std::string>& companion_names() {
  static const std::vector<std::string> names{config_file_name,    generation_file_name, tokenizer_config_name, map_name,
                                              "added_tokens.json", jinja_name,           template_name,         processor_name};
  return names;
}

Companions companions_in(const fs::path& folder, const Note& note) {
  Companions companions;
  std::error_code error;
  for (const std::string& name : companion_names()) {
    const fs::path file = folder / name;
    if (!fs::is_regular_file(file, error)) continue;
    const std::uintmax_t bytes = fs::file_size(file, error);
    std::string text = bytes > largest_companion ? std::string() : read_text(file.string(), largest_companion);
    const char* why = bytes > largest_companion               ? "more than 1 MiB"
                      : valid_utf8_prefix(text) < text.size() ? "bytes that are not valid UTF-8"
                                                              : nullptr;
    if (!why) companions[name] = std::move(text);
    else if (note) note(fmt::format("{}: is not copied into the checkpoint: it has {}", file.string(), why));
  }
  return companions;
}

std::vector<Index> end_tokens_in(const Companions& companions, const std::string& origin) {
  const json generation = object_in(companions, generation_file_name, origin);
  if (const json ends = generation.value("eos_token_id", json()); !ends.is_null()) return end_tokens_of(ends, place(origin, generation_file_name));
  const auto config = companions.find(config_file_name);
  if (config == companions.end()) return {};
  return parse_config_json(config->second, place(origin, config_file_name)).end_tokens;
}

std::string suggestions_in(const Companions& companions, const std::string& origin) {
  const json generation = object_in(companions, generation_file_name, origin);
  std::string text;
  for (const char* key : {"do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "num_beams", "max_new_tokens"})
    if (const json value = generation.value(key, json()); !value.is_null())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, text_of(value));
  return text;
}

std::map<std::string, std::string> special_tokens_in(const Companions& companions, const std::string& origin) {
  std::map<std::string, std::string> tokens;
  for (const char* file : {tokenizer_config_name, map_name}) {
    const json object = object_in(companions, file, origin);
    for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"})
      if (const auto token = token_in(object, name)) tokens.emplace(name, *token);
  }
  return tokens;
}

std::optional<JinjaTemplate> chat_template_in(const Companions& companions, const std::string& origin) {
  JinjaTemplate found;
  found.tokens = special_tokens_in(companions, origin);
  if (const auto file = companions.find(jinja_name); file != companions.end()) {
    found.text = file->second, found.origin = place(origin, jinja_name);
    return found;
  }
  for (const char* name : {tokenizer_config_name, template_name}) {
    found.origin = place(origin, name);
    const json file = object_in(companions, name, origin);
    if (const auto text = template_in(file.value("chat_template", json()), found.origin)) {
      found.text = *text;
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace gyr
