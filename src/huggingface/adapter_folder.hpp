// SPDX-License-Identifier: BSD-3-Clause
// Adapters as PEFT's folders hold them: adapter_config.json, and adapter_model.safetensors with base_model.model.LAYER.lora_A.weight (r,K) and
// .lora_B.weight (N,r) of each layer, by its name in the class of transformers.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "modules/weights/adapter.hpp"
#include "src/huggingface/stored_names.hpp"

namespace gyr {

inline constexpr const char *adapter_config_name = "adapter_config.json", *adapter_file_name = "adapter_model.safetensors";

// What the folder says of its adapters, of a model of this family; `also` is empty. Exit::missing, Exit::data naming what is not had here: other
// kinds than LORA, biases, ranks by layer, DoRA, rank-stabilised scales, other weights saved beside.
LoraConfig read_adapter_config(const std::filesystem::path& folder);
std::string adapter_config_json(const LoraConfig&, const std::vector<std::string>& target_modules, const std::string& base);

// The tensor of the folder that is a part of an adapter; `name` as ours, MODEL-LAYER.lora_A.weight. Exit::config where the layer is no tensor of its
// own in the family, so that no adapter of PEFT's stands beside it.
std::string adapter_tensor(const StoredNames& base, const std::string& name);

// Layers by the last parts of their names, as q_proj, where all layers of that name are among them, and by their whole names where not.
std::vector<std::string> shortest_layer_names(const std::set<std::string>& layers, const std::set<std::string>& all);

// Our names of the layers that PEFT means by its own: one that has a dot is a layer's whole name or its end. Others stay, and those that no layer
// has.
std::vector<std::string> our_targets(const std::vector<std::string>& target_modules, const StoredNames& base, const std::vector<Weight>& weights);

// Our name of the weight that an adapter's part stands beside.
std::string adapted_weight(const std::string& name);

}  // namespace gyr
