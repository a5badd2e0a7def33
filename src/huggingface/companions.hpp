// SPDX-License-Identifier: BSD-3-Clause
// The small files beside a model's weights that say how it is to be used: ids of tokens, settings for generation, the chat template. A folder
// of Hugging Face's holds them; a checkpoint that came from one carries their text.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "src/base/note.hpp"

namespace gyr {

using Companions = std::map<std::string, std::string>;  // text by name of the file

inline constexpr const char *generation_file_name = "generation_config.json", *tokenizer_config_name = "tokenizer_config.json";

const std::vector<std::string>& companion_names();
// Those of a folder that a checkpoint carries. One that has more than a mebibyte or is no UTF-8 is left behind, and `note` is told.
Companions companions_in(const std::filesystem::path& folder, const Note& note);

// Tokens that end what the model writes, as transformers' generate() has them: those of generation_config.json or, where it names none,
// of config.json. `origin` is what messages call the folder or checkpoint. Exit::data naming file and key.
std::vector<Index> end_tokens_in(const Companions&, const std::string& origin);
// What generation_config.json suggests for sampling, as in "temperature 0.7, top_p 0.9"; empty where it suggests nothing.
std::string suggestions_in(const Companions&, const std::string& origin);

// A chat template as Jinja text, and the special tokens that it may call by name.
struct JinjaTemplate {
  std::string text, origin;
  std::map<std::string, std::string> tokens;  // "bos_token", "eos_token", ...
};
// As transformers looks for it: chat_template.jinja, else the key chat_template of tokenizer_config.json, of several the one called default,
// else chat_template.json. Exit::data.
std::optional<JinjaTemplate> chat_template_in(const Companions&, const std::string& origin);

}  // namespace gyr
