// SPDX-License-Identifier: BSD-3-Clause
// LoRA adapters in PEFT's folder format: adapter_config.json, and adapter_model.safetensors with the tensors
// base_model.model.LAYER.lora_A.weight (r,K) and base_model.model.LAYER.lora_B.weight (N,r). LAYER is the layer's name
// in the transformers class.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "modules/weights/adapter.hpp"
#include "src/huggingface/stored_names.hpp"

namespace gyr {

inline constexpr const char *adapter_config_name = "adapter_config.json", *adapter_file_name = "adapter_model.safetensors";

// Reads rank, alpha and target_modules from adapter_config.json; `also` of the result is empty. Throws Exit::missing if
// there is no such file. Throws Exit::data naming the key of an unsupported setting: a peft_type other than LORA,
// biases, per-layer ranks, DoRA, rank-stabilised scaling, modules_to_save.
LoraConfig read_adapter_config(const std::filesystem::path& folder);
std::string adapter_config_json(const LoraConfig&, const std::vector<std::string>& target_modules, const std::string& base);

// Name of the tensor in PEFT's file for one part of an adapter. `name` is our name, MODEL-LAYER.lora_A.weight. Throws
// Exit::config if the family stores the layer's weight fused with others or transposed: PEFT has no adapter for a part
// of a tensor.
std::string adapter_tensor(const StoredNames& base, const std::string& name);

// Shortest names that select exactly `layers` among `all`. A layer is given by the last part of its name, as in q_proj,
// if all layers that end so are selected, and otherwise by its full name.
std::vector<std::string> shortest_layer_names(const std::set<std::string>& layers, const std::set<std::string>& all);

// Translates PEFT's target_modules into our layer names. A target that contains a dot is the full name or a suffix of a
// layer's name in transformers. Targets without a dot, and those that match no layer, are returned unchanged.
std::vector<std::string> our_targets(const std::vector<std::string>& target_modules, const StoredNames& base, const std::vector<Weight>& weights);

// Our name of the base weight that the adapter tensor `name` (LAYER.lora_A.weight) belongs to: LAYER.weight.
std::string adapted_weight(const std::string& name);

}  // namespace gyr
