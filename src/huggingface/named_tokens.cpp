// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/named_tokens.hpp"

#include <nlohmann/json.hpp>

#include "src/huggingface/companions.hpp"
#include "src/huggingface/json.hpp"

namespace gyr {

namespace {

using json = nlohmann::json;

constexpr std::size_t largest_config = std::size_t(256) << 20;
constexpr const char *usual_mask = "[MASK]", *sentinel = "<extra_id_0>";

// Parses a file as a JSON object; returns an empty object if the file is missing or invalid. The code that reads the
// full tokenizer reports errors.
json object_in(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) || std::filesystem::file_size(file, error) > largest_config) return json::object();
  json object = json::parse(read_text(file.string(), largest_config), nullptr, false);
  return object.is_object() ? object : json::object();
}

std::string name_of_mask(const std::filesystem::path& folder) {
  for (const char* file : {tokenizer_config_name, "special_tokens_map.json"}) {
    const json token = object_in(folder / file).value("mask_token", json());
    const json text = token.is_object() ? token.value("content", json()) : token;
    if (text.is_string()) return text.get<std::string>();
  }
  return usual_mask;
}

std::optional<Token> token_of(const json& id) {
  if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= std::uint64_t(1) << 31) return std::nullopt;
  return id.get<Token>();
}

// Id of a token in the folder's tokenizer.json, among the added tokens or in the vocabulary.
std::optional<Token> find_token_id(const std::string& name, const std::filesystem::path& folder) {
  const json tokenizer = object_in(folder / "tokenizer.json");
  if (const auto added = tokenizer.find("added_tokens"); added != tokenizer.end() && added->is_array())
    for (const json& token : *added)
      if (token.is_object() && token.value("content", json()) == name) return token_of(token.value("id", json()));
  const json model = tokenizer.value("model", json());
  const json vocabulary = model.is_object() ? model.value("vocab", json()) : json();
  return vocabulary.is_object() ? token_of(vocabulary.value(name, json())) : std::nullopt;
}

}  // namespace

std::optional<Token> mask_token_in(const std::filesystem::path& folder) { return find_token_id(name_of_mask(folder), folder); }
std::optional<Token> first_sentinel_in(const std::filesystem::path& folder) { return find_token_id(sentinel, folder); }

}  // namespace gyr
