// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/peft_names.hpp"

#include "modules/model/layer.hpp"
#include "modules/weights/adapter.hpp"

namespace gyr {

namespace {

// Layers that PEFT does not find by target_modules.
struct Exception {
  std::string_view model_type, layer;
  PeftWay way;
};
constexpr Exception exceptions[] = {
    // Kernels of these classes read the weight of out_proj without calling the layer.
    {"falcon_h1", "out_proj", PeftWay::refused},
    {"mamba2", "out_proj", PeftWay::refused},
    {"nemotron_h", "out_proj", PeftWay::refused},
    // In target_modules of these classes, PEFT replaces the names by those of the stacked experts.
    {"deepseek_v3", "gate_proj", PeftWay::parameter},
    {"deepseek_v3", "up_proj", PeftWay::parameter},
    {"deepseek_v3", "down_proj", PeftWay::parameter},
    {"qwen3_moe", "gate_proj", PeftWay::parameter},
    {"qwen3_moe", "up_proj", PeftWay::parameter},
    {"qwen3_moe", "down_proj", PeftWay::parameter},
};

// Part of a tensor name, as stored and in memory.
struct Renaming {
  std::string_view model_type, stored, in_memory;
};
constexpr Renaming renamings[] = {{"nemotron_h", "backbone.", "model."}, {"mixtral", "block_sparse_moe.gate.", "mlp.gate."}};

struct Task {
  std::string_view ending, task_type;  // of a class name
};
constexpr Task tasks[] = {{"ForCausalLM", "CAUSAL_LM"},
                          {"LMHeadModel", "CAUSAL_LM"},
                          {"ForConditionalGeneration", "SEQ_2_SEQ_LM"},
                          {"ForSequenceClassification", "SEQ_CLS"},
                          {"ForTokenClassification", "TOKEN_CLS"}};

std::string last_part(const std::string& layer) { return layer.substr(layer.rfind('.') + 1); }

}  // namespace

PeftNames::PeftNames(const Family& family, const ModelConfig& model)
    : family_(&family), stored_(family, model), tied_(model.tie_word_embeddings), has_encoder_(has_encoder(model) && !reads_images(model)) {}

std::string PeftNames::in_memory(std::string name) const {
  for (const auto& [model_type, stored, other] : renamings)
    if (const auto at = name.find(stored); family_->model_type == model_type && at != name.npos) name.replace(at, stored.size(), other);
  return name;
}

std::string PeftNames::parameter(const Weight& w) const {
  const StoredPlace place = stored_.place(w.name);
  const bool is_stacked_expert = w.expert && place.members == 0;
  return is_stacked_expert || w.name.starts_with("mtp.") ? "" : in_memory(place.name);
}

std::string PeftNames::layer(const Weight& w) const { return layer_of(parameter(w)); }

PeftWay PeftNames::way(const Weight& w) const {
  const StoredPlace place = stored_.place(w.name);
  if (parameter(w).empty() || place.stack > 0 || place.members > 0) return PeftWay::absent;
  for (const auto& [model_type, layer, way] : exceptions)
    if (family_->model_type == model_type && last_part(this->layer(w)) == layer) return way;
  return PeftWay::layer;
}

std::string PeftNames::shared_head() const { return tied_ ? in_memory(stored_.head()) : ""; }

bool PeftNames::is_shared_embedding(const Weight& w) const { return w.name == embedding_name && (tied_ || has_encoder_); }

std::string PeftNames::task_type() const {
  for (const auto& [ending, task_type] : tasks)
    if (std::string_view(family_->architecture).ends_with(ending)) return std::string(task_type);
  return "";
}

std::vector<std::string> PeftNames::heads() const {
  return task_type().ends_with("_CLS") ? std::vector<std::string>{"classifier", "score"} : std::vector<std::string>{};
}

std::string PeftNames::python_module() const { return fmt::format("transformers.models.{0}.modeling_{0}", family_->model_type); }

std::vector<std::string> shortest_layer_names(const std::set<std::string>& layers, const std::set<std::string>& all) {
  std::set<std::string> unselected, names;  // unselected: last name parts of the layers that are not selected; names: the result
  for (const std::string& layer : all)
    if (!layers.contains(layer)) unselected.insert(last_part(layer));
  for (const std::string& layer : layers) names.insert(unselected.contains(last_part(layer)) ? layer : last_part(layer));
  return {names.begin(), names.end()};
}

}  // namespace gyr
