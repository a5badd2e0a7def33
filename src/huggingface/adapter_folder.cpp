// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/adapter_folder.hpp"

#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "src/huggingface/json.hpp"

namespace gyr {

namespace {

constexpr std::string_view weight_ending = ".weight";

// Splits the name of an adapter tensor into the layer and the part, e.g. "lora_A.weight".
std::pair<std::string, std::string> layer_and_part(const std::string& name) {
  const std::size_t at = name.rfind(".lora_");
  ensure(at != name.npos, "{} is not the name of a LoRA tensor", name);
  return {name.substr(0, at), name.substr(at + 1)};
}

// True if a PEFT setting has no effect: the key is absent, null, false, empty, or has the value `word`.
bool has_no_effect(const nlohmann::json& j, const char* key, const char* word = "") {
  const auto at = j.find(key);
  return at == j.end() || at->is_null() || *at == false || *at == word || ((at->is_object() || at->is_array()) && at->empty());
}

}  // namespace

std::string adapted_weight(const std::string& name) { return layer_and_part(name).first + std::string(weight_ending); }

std::string adapter_tensor(const StoredNames& base, const std::string& name) {
  const auto [layer, part] = layer_and_part(name);
  const StoredPlace place = base.place(layer + std::string(weight_ending));
  require(place.is_whole() && place.name.ends_with(weight_ending), Exit::config,
          "{}: is stored fused with other weights or transposed, in tensor {}; a PEFT adapter needs a tensor of its own; choose other targets", layer,
          place.name);
  return "base_model.model." + place.name.substr(0, place.name.size() - weight_ending.size()) + "." + part;
}

std::vector<std::string> shortest_layer_names(const std::set<std::string>& layers, const std::set<std::string>& all) {
  const auto last = [](const std::string& layer) { return layer.substr(layer.rfind('.') + 1); };
  std::set<std::string> apart, names;  // apart: last name parts of the layers that are not selected; names: the result
  for (const std::string& layer : all)
    if (!layers.contains(layer)) apart.insert(last(layer));
  for (const std::string& layer : layers) names.insert(apart.contains(last(layer)) ? layer : last(layer));
  return {names.begin(), names.end()};
}

std::vector<std::string> our_targets(const std::vector<std::string>& target_modules, const StoredNames& base, const std::vector<Weight>& weights) {
  std::vector<std::string> targets;
  std::set<std::string> named, all;
  for (const std::string& target : target_modules) {
    bool found = false;
    for (const Weight& w : weights) {
      if (!w.adapts) continue;
      const std::string layer = layer_of(w.name), theirs = layer_of(base.place(w.name).name);
      all.insert(layer);
      if (target.find('.') == target.npos || (theirs != target && !theirs.ends_with("." + target))) continue;
      named.insert(layer), found = true;
    }
    if (!found) targets.push_back(target);
  }
  for (const std::string& name : shortest_layer_names(named, all)) targets.push_back(name);
  return targets;
}

LoraConfig read_adapter_config(const std::filesystem::path& folder) {
  const std::string file = (folder / adapter_config_name).string();
  const nlohmann::json j = parse_json(read_text(file, std::size_t(1) << 20), file);
  const auto need = [&](bool holds, const char* what) { require(holds, Exit::data, "{}: {}", file, what); };
  need(j.is_object() && j.value("peft_type", "") == "LORA", "peft_type is not LORA; only LoRA adapters are supported");
  need(has_no_effect(j, "bias", "none"), "bias is not \"none\"; adapters with trained biases are not supported");
  for (const char* key : {"use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform", "fan_in_fan_out",
                          "lora_bias", "use_qalora", "use_bdlora", "velora_config", "arrow_config", "target_parameters", "trainable_token_indices",
                          "layer_replication", "exclude_modules", "alora_invocation_tokens"})
    require(has_no_effect(j, key), Exit::data, "{}: {} is set, and this PEFT option is not supported", file, key);
  LoraConfig c;
  need(j.contains("r") && j["r"].is_number_integer() && j["r"] > 0, "r is missing or is not a positive integer (the LoRA rank)");
  c.rank = j["r"];
  need(j.contains("lora_alpha") && j["lora_alpha"].is_number() && j["lora_alpha"] > 0, "lora_alpha is missing or is not a positive number");
  c.alpha = j["lora_alpha"];
  const auto targets = j.find("target_modules");
  need(targets != j.end() && targets->is_array() && !targets->empty(), "target_modules is not a list of layer names");
  c.targets.clear();
  for (const auto& name : *targets) {
    need(name.is_string(), "target_modules is not a list of layer names");
    c.targets.push_back(name);
  }
  return c;
}

std::string adapter_config_json(const LoraConfig& c, const std::vector<std::string>& target_modules, const std::string& base) {
  nlohmann::ordered_json j;
  j["peft_type"] = "LORA", j["task_type"] = "CAUSAL_LM", j["base_model_name_or_path"] = base;
  j["r"] = c.rank, j["lora_alpha"] = c.alpha, j["lora_dropout"] = 0.0, j["bias"] = "none", j["fan_in_fan_out"] = false;
  j["target_modules"] = target_modules, j["inference_mode"] = true, j["init_lora_weights"] = true;
  return j.dump(2) + "\n";
}

}  // namespace gyr
