// SPDX-License-Identifier: BSD-3-Clause
// Reads and writes Hugging Face's config.json for the supported model families (family.hpp, families/).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "modules/model/model_config.hpp"

namespace gyr {

inline constexpr const char* config_file_name = "config.json";

struct Family;

struct HuggingFaceConfig {
  std::string model_type = "falcon_h1", architecture;  // model_type and class name of the family
  ModelConfig model;                                   // model configuration, including pad_token_id
  std::string dtype;                                   // "bfloat16", "float16", "float32" or "float64"; empty if the file does not name one
  std::optional<Index> begin_token;                    // bos_token_id; empty: there is none
  std::vector<Index> end_tokens;                       // eos_token_id, one or several token ids
  bool norm_before_gate = true;                        // mamba_norm_before_gate; has no effect if the mixer has no norm
  Index positions = 8192;                              // max_position_embeddings: informational, not a limit of the model
  bool weights_decide_tie = false;                     // true: tie_word_embeddings is true for tied and for untied heads (T5 of transformers 5)
  bool blocks = false;                                 // true: expert matrices are in MXFP4 blocks: quantization_config.quant_method is "mxfp4"
  std::map<std::string, std::string> carried;          // JSON text by key: no effect here, written again on export to the same class
  std::vector<std::string> notes;                      // warnings about keys that are ignored or not applied, one sentence each
  // Objective with multi-token prediction (MTP) modules; null if the config.json has none. The weights decide whether the modules are really there.
  std::shared_ptr<const Objective> ahead;
};

// Reads a config.json. A missing key takes transformers' default; rope_theta of some families must be given, because
// its default changed between versions. Throws Exit::data naming file and key if a value has the wrong type, is out of
// range, or asks for something that is not supported: another rotary embedding, activation, model type, or
// quantization. Unknown keys become notes.
HuggingFaceConfig read_config_json(const std::filesystem::path& file);
HuggingFaceConfig parse_config_json(std::string_view text, const std::string& origin);

// Writes the model as config.json of the given family, or of the family that family_for() finds; the latter prefers the
// family of model_type.
std::string write_config_json(const HuggingFaceConfig&, const Family&);
std::string write_config_json(const HuggingFaceConfig&);

}  // namespace gyr
