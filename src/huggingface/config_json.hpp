// SPDX-License-Identifier: BSD-3-Clause
// config.json of the families of models in families/ (family.hpp).
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
  std::string model_type = "falcon_h1", architecture;  // the family
  ModelConfig model;                                   // its padding is pad_token_id
  std::string dtype;                                   // "bfloat16", "float16", "float32", "float64"; empty where the file does not say
  std::optional<Index> begin_token;                    // bos_token_id
  std::vector<Index> end_tokens;                       // eos_token_id, one or several
  bool norm_before_gate = true;                        // mamba_norm_before_gate, which means nothing where there is no norm
  Index positions = 8192;                              // max_position_embeddings: bookkeeping, no limit of the model
  bool blocks = false;                                 // matrices of experts are in blocks of 4 bits: quantization_config says mxfp4
  std::map<std::string, std::string> carried;          // keys and their JSON that say nothing of the model here, and something to transformers
  std::vector<std::string> notes;                      // what was not taken over, a sentence each
  std::shared_ptr<const Objective> ahead;              // of the model with modules that tell tokens further ahead, where the file speaks of
                                                       // some: whether they are there, the weights tell
};

// The file as it stands: what it does not say is transformers' default, except the base of the rotary positions, whose default changed
// between versions and which must be there. Exit::data naming file and key where a value is of the wrong type, out of range, or asks for
// a function the model has not (another rotary embedding, activation, model type, quantization but that of its class); notes for keys that are not
// known.
HuggingFaceConfig read_config_json(const std::filesystem::path& file);
HuggingFaceConfig parse_config_json(std::string_view text, const std::string& origin);

// As a family says it, and as the one does that family_for() finds, its own model_type before the others.
std::string write_config_json(const HuggingFaceConfig&, const Family&);
std::string write_config_json(const HuggingFaceConfig&);

}  // namespace gyr
