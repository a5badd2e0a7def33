// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/adapter_export.hpp"

#include <algorithm>

#include "modules/cost/flops.hpp"
#include "modules/settings/weight_pattern.hpp"
#include "src/base/output_folder.hpp"
#include "src/huggingface/peft_names.hpp"
#include "src/pretrained/adapter_import.hpp"
#include "src/pretrained/tensor_export.hpp"

namespace gyr {

namespace {

using safetensors::Type;

// The adapters of a model in PEFT's terms.
struct PeftExport {
  AdapterConfig config;
  BaseModelText base;
  std::vector<const Weight*> adapted, saved;  // weights with an adapter, and weights that PEFT replaces (modules_to_save)
};

void require_layer(const PeftNames& names, const Weight& w) {
  const std::string place = names.place(w.name).name;
  require(
      names.way(w) != PeftWay::absent, Exit::config,
      "{}: is stored fused with other weights, in tensor {}, or is no layer of {}; a PEFT adapter needs a layer of its own; choose other targets, or "
      "export the merged model without --adapters",
      layer_of(w.name), place, names.architecture());
  require(names.way(w) != PeftWay::refused, Exit::config,
          "{}: PEFT refuses adapters on out_proj of {}; choose other targets, or export the merged model without --adapters", layer_of(w.name),
          names.architecture());
}

// Chooses the names that select the adapted layers.
void select_layers(const PeftNames& names, const std::vector<Weight>& weights, const LoraConfig& lora, PeftExport& to) {
  std::set<std::string> layers, all;
  for (const Weight& w : weights) {
    if (w.of_adapter) continue;
    const std::string layer = names.layer(w);
    all.insert(layer);
    if (!lora.targets_weight(w)) continue;
    require_layer(names, w);
    to.adapted.push_back(&w);
    to.base.transposed |= names.place(w.name).transposed;
    if (names.way(w) == PeftWay::layer) layers.insert(layer);
    else to.config.parameters.push_back(layer + ".weight");
  }
  to.config.targets = shortest_layer_names(layers, all);
}

// Chooses the modules whose weights are stored: those of weights that were trained in full, and the heads that PEFT
// stores in any case. A module must be complete, and PEFT must not know it under two names.
void select_modules(const PeftNames& names, const std::vector<Weight>& weights, const LoraConfig& lora, PeftExport& to) {
  const auto module_of = [&](const Weight& w) { return names.parameter(w).substr(0, names.parameter(w).rfind('.')); };
  const std::vector<std::string> heads = names.heads();
  std::set<std::string> saved(heads.begin(), heads.end());
  for (const Weight& w : weights) {
    if (w.of_adapter || !matches_any(lora.also, w.name)) continue;
    const std::string module = module_of(w);
    const bool is_leaf = std::none_of(weights.begin(), weights.end(), [&](const Weight& other) {
      const std::string parameter = names.parameter(other);
      return parameter.starts_with(module + ".") && (parameter.find('.', module.size() + 1) != parameter.npos || lora.targets_weight(other));
    });
    require(!module.empty() && is_leaf && !names.is_shared_embedding(w) && module != layer_of(names.shared_head()), Exit::config,
            "{}: was trained too (finetune.lora.also), but PEFT cannot store it: it is no module of its own in {}, it shares its matrix, or its "
            "layer has "
            "an adapter; export the merged model without --adapters",
            w.name, names.architecture());
    saved.insert(module);
  }
  for (const Weight& w : weights)
    if (!w.of_adapter && saved.contains(module_of(w))) to.saved.push_back(&w);
  to.config.saved.assign(saved.begin(), saved.end());
}

// The tensors of adapter_model.safetensors.
std::vector<TensorExport> adapter_jobs(const CheckpointFile& file, const PeftNames& names, const LoraConfig& lora, const PeftExport& peft,
                                       std::optional<Type> wanted) {
  std::vector<TensorExport> jobs;
  const auto named = [&](const std::string& name) { return std::string(peft_prefix) + name; };
  for (const Weight* w : peft.adapted)
    for (const auto& [part, weight] : {std::pair{"lora_A", adapter_a(*w, lora)}, std::pair{"lora_B", adapter_b(*w, lora)}}) {
      TensorReader from = file.open(weight.name, DType::f32);
      const Type type = wanted.value_or(stored_type(file, weight.name));
      jobs.push_back({std::move(from), {named(fmt::format("{}.{}.weight", names.layer(*w), part)), type, weight.shape}, false});
    }
  for (const Weight* w : peft.saved)
    if (names.stored().weights(names.place(w->name).name).front() == w->name)
      jobs.push_back(tensor_export(file, {}, names.stored(), named(names.parameter(*w)), w->name, wanted));
  return jobs;
}

}  // namespace

void check_adapters(const ModelConfig& model, const Family& family, const ModelConfig& plain) {
  const PeftNames names(family, plain);
  const std::vector<Weight> weights = declared_weights(plain);
  PeftExport peft;
  select_layers(names, weights, model.lora, peft);
  select_modules(names, weights, model.lora, peft);
}

Converted export_adapters(const CheckpointFile& file, const ModelConfig& model, const Family& family, const ModelConfig& plain,
                          const std::filesystem::path& target, const ExportOptions& options, const std::filesystem::path& like) {
  require(bool(model.lora), Exit::config, "{}: has no adapters; only runs with finetune.lora.rank > 0 have them", file.name());
  const PeftNames names(family, plain);
  const std::vector<Weight> weights = declared_weights(plain);
  PeftExport peft;
  peft.config.rank = model.lora.rank, peft.config.alpha = model.lora.alpha;
  peft.base = {like.string(), names.task_type(), names.architecture(), names.python_module()};
  select_layers(names, weights, model.lora, peft);
  select_modules(names, weights, model.lora, peft);
  const std::vector<TensorExport> jobs = adapter_jobs(file, names, model.lora, peft, options.type);

  using Existing = OutputFolder::Existing;
  OutputFolder folder(target, options.overwrite ? Existing::replace : Existing::refuse, belongs_to_model_folder);
  Converted result{Index(jobs.size()), 0, 1};
  std::vector<const TensorExport*> all;
  for (const TensorExport& job : jobs) result.bytes += job.bytes(), all.push_back(&job);
  write_text(folder / adapter_config_name, adapter_config_json(peft.config, peft.base));
  Transfer transfer(stderr, "export", result.bytes);
  write_shard(folder / adapter_file_name, all, transfer);
  folder.commit();
  return result;
}

}  // namespace gyr
