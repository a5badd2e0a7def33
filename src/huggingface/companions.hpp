// SPDX-License-Identifier: BSD-3-Clause
// Small files next to a model's weights: token ids, generation settings and the chat template. A Hugging Face folder
// holds them as files, and a checkpoint that was converted from such a folder carries their text.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "src/base/note.hpp"

namespace gyr {

using Companions = std::map<std::string, std::string>;  // text of each file, by file name

inline constexpr const char *generation_file_name = "generation_config.json", *tokenizer_config_name = "tokenizer_config.json",
                            *processor_name = "preprocessor_config.json";

const std::vector<std::string>& companion_names();
// The companion files of a folder. A file above 1 MiB or one that is not valid UTF-8 is left out, and `note` receives a
// warning.
Companions companions_in(const std::filesystem::path& folder, const Note& note);

// End-of-sequence token ids, as transformers' generate() determines them: eos_token_id of generation_config.json or, if
// it is not given there, of config.json. `origin` is the name of the folder or checkpoint in messages. Throws
// Exit::data naming file and key.
std::vector<Index> end_tokens_in(const Companions&, const std::string& origin);
// Sampling settings that generation_config.json recommends, e.g. "temperature 0.7, top_p 0.9"; empty if there are none.
std::string suggestions_in(const Companions&, const std::string& origin);

// The special tokens that a chat template may refer to by name: "bos_token", "eos_token", ... They are named in
// tokenizer_config.json, otherwise in special_tokens_map.json. Throws Exit::data.
std::map<std::string, std::string> special_tokens_in(const Companions&, const std::string& origin);

// A chat template in Jinja, and the special tokens that it may refer to.
struct JinjaTemplate {
  std::string text, origin;
  std::map<std::string, std::string> tokens;  // text of each special token, by its key "bos_token", "eos_token", ...
};
// Finds the chat template in the order of transformers: chat_template.jinja, then the key chat_template of
// tokenizer_config.json (the one named "default" if there are several), then chat_template.json. Throws Exit::data.
std::optional<JinjaTemplate> chat_template_in(const Companions&, const std::string& origin);

}  // namespace gyr
