// SPDX-License-Identifier: BSD-3-Clause
// adapter_config.json of PEFT's LoRA folders: the layers with an adapter, and its scale. Keys that change the
// computation in any other way are refused. The meaning of each key was measured with PEFT 0.21.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/tensor.hpp"

namespace gyr {

inline constexpr const char* adapter_config_name = "adapter_config.json";

struct AdapterConfig {
  Index rank = 0;
  double alpha = 0;    // an adapter is scaled by alpha / rank; contains the factor sqrt(rank) of use_rslora
  double dropout = 0;  // lora_dropout, which PEFT applies in training only
  // Full names of layers in transformers, or suffixes that start after a dot: target_modules and exclude_modules.
  std::vector<std::string> targets, excluded;
  std::vector<std::string> parameters;       // target_parameters: the same for names of weights
  std::vector<std::string> saved;            // modules_to_save: suffixes of names of modules whose weights are in the file
  std::optional<std::vector<Index>> layers;  // layers_to_transform: the layer indices with adapters; nullopt: all
  std::vector<std::string> lists;            // layers_pattern: names of module lists that the indices count; empty: any

  bool adapts_layer(const std::string& layer) const;          // true if PEFT adapts the layer by target_modules
  bool adapts_parameter(const std::string& parameter) const;  // true if PEFT adapts the weight by target_parameters
  bool saves(const std::string& parameter) const;             // true if the weight belongs to a module in modules_to_save
};

// Throws Exit::missing if there is no adapter_config.json. Throws Exit::data with the key if the file is not LORA, or if
// a key asks for a computation that is not supported.
AdapterConfig read_adapter_config(const std::filesystem::path& folder);

// The base model in the exported file. `task_type` is empty for classes without one; PEFT then finds the class by its
// name and Python module.
struct BaseModelText {
  std::string path, task_type, architecture, module;
  bool transposed = false;  // the base model stores the adapted weights transposed (fan_in_fan_out)
};
// The text of adapter_config.json for adapters that are selected by `targets` and `parameters`. Only rank, alpha,
// targets, parameters and saved of the config are written.
std::string adapter_config_json(const AdapterConfig&, const BaseModelText&);

}  // namespace gyr
