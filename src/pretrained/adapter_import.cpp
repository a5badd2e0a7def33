// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/adapter_import.hpp"

#include <algorithm>

#include "kernels/base/printable.hpp"
#include "modules/cost/flops.hpp"
#include "src/deck/yaml.hpp"

namespace gyr {

namespace {

const Family& family_of(const FolderWeights& base) {
  const HuggingFaceConfig config = read_config_json(std::filesystem::path(base.folder().name()) / config_file_name);
  return *find_family(config.model_type, config.architecture);
}

// Name of a parameter in memory while its layer has an adapter.
std::string below_adapter(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return parameter.substr(0, dot) + ".base_layer" + parameter.substr(dot);
}

}  // namespace

AdapterWeights::AdapterWeights(const FolderWeights& base, const std::filesystem::path& adapters, const ModelConfig& model)
    : base_(base), config_name_((adapters / adapter_config_name).string()), config_(read_adapter_config(adapters)), names_(family_of(base), model),
      file_(adapters / adapter_file_name) {
  lora_.rank = config_.rank, lora_.alpha = config_.alpha;
  for (const safetensors::Tensor& t : file_.tensors()) tensors_[t.name] = &t;
  const std::vector<Weight> weights = declared_weights(model);
  take_adapters(weights);
  take_replaced(weights);
  refuse_unknown(weights);
}

const safetensors::Tensor* AdapterWeights::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

// Tensors of adapters may also have the name under which the base weight is stored, which PEFT converts.
void AdapterWeights::take_adapter(const Weight& w, const std::string& part, const std::string& ours) {
  const std::string name = fmt::format("{}{}.{}", peft_prefix, names_.layer(w), part);
  const safetensors::Tensor* tensor = find(name);
  if (!tensor) tensor = find(fmt::format("{}{}.{}", peft_prefix, layer_of(names_.place(w.name).name), part));
  require(tensor, Exit::data, "{}: has no {}, which {} requires", file_.name(), name, adapter_config_name);
  sources_[ours] = {tensor, {tensor->name}};
}

void AdapterWeights::take_adapters(const std::vector<Weight>& weights) {
  std::set<std::string> ours, all;
  for (const Weight& w : weights) {
    if (!w.adapts) continue;
    all.insert(layer_of(w.name));
    if (names_.way(w) == PeftWay::absent) continue;
    const std::string layer = names_.layer(w);
    const bool by_layer = config_.adapts_layer(layer), by_parameter = config_.adapts_parameter(layer + ".weight");
    require(!by_layer || names_.way(w) != PeftWay::parameter, Exit::data,
            "{}: target_modules selects {}, but in this class PEFT takes the name for that of the experts and drops the adapter; name {}.weight in "
            "target_parameters instead",
            config_name_, layer, layer);
    require(!by_layer || !by_parameter, Exit::data, "{}: selects {} by target_modules and by target_parameters; remove one of them", config_name_,
            layer);
    if (!by_layer && !by_parameter) continue;
    take_adapter(w, "lora_A.weight", adapter_a(w, lora_).name);
    take_adapter(w, "lora_B.weight", adapter_b(w, lora_).name);
    ours.insert(layer_of(w.name));
    adapted_.insert(layer);
  }
  require(!ours.empty(), Exit::data, "{}: target_modules selects no layer of this model that takes an adapter; those are {}", config_name_,
          layers_that_take_adapters(weights));
  lora_.targets = shortest_layer_names(ours, all);
}

void AdapterWeights::take_replaced(const std::vector<Weight>& weights) {
  for (const Weight& w : weights) {
    const std::string parameter = names_.parameter(w);
    if (parameter.empty()) continue;
    const bool has_adapter = adapted_.contains(layer_of(parameter)) || adapted_.contains(parameter.substr(0, parameter.rfind('.')));
    const std::string name = std::string(peft_prefix) + (has_adapter ? below_adapter(parameter) : parameter);
    const safetensors::Tensor* const tensor = find(name);
    if (!tensor) {
      require(has_adapter || !config_.saves(parameter), Exit::data, "{}: has no {}, which modules_to_save in {} requires", file_.name(), name,
              adapter_config_name);
      continue;
    }
    require(
        !names_.is_shared_embedding(w), Exit::data,
        "{}: replaces {}, which other parts of the model use too; PEFT replaces it in one place only, which is not supported; merge the adapter into "
        "the model with PEFT (merge_and_unload), and import the merged folder",
        file_.name(), parameter);
    sources_[w.name] = {tensor, names_.place(w.name)};
    lora_.also.push_back(w.name);
  }
}

void AdapterWeights::refuse_unknown(const std::vector<Weight>& weights) const {
  std::set<std::string> used;
  for (const auto& [weight, source] : sources_) used.insert(source.tensor->name);
  for (const safetensors::Tensor& tensor : file_.tensors())
    require(used.contains(tensor.name), Exit::data,
            "{}: has {}, which {} does not select, or which belongs to no layer that takes an adapter here; those are {}; merge the adapter into the "
            "model "
            "with PEFT (merge_and_unload), and import the merged folder",
            file_.name(), shown(tensor.name), adapter_config_name, layers_that_take_adapters(weights));
}

std::string AdapterWeights::layers_that_take_adapters(const std::vector<Weight>& weights) const {
  std::set<std::string> names;
  for (const Weight& w : weights)
    if (w.adapts && names_.way(w) != PeftWay::absent) names.insert(names_.layer(w).substr(names_.layer(w).rfind('.') + 1));
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

safetensors::Type AdapterWeights::type(const std::string& weight) const {
  const auto source = sources_.find(weight);
  return source == sources_.end() ? base_.folder().tensor(base_.key(weight)).type : source->second.tensor->type;
}

std::string AdapterWeights::key(const std::string& weight) const {
  const auto source = sources_.find(weight);
  return source == sources_.end() ? base_.key(weight) : source->second.tensor->name;
}

std::vector<std::string> AdapterWeights::keys() const {
  std::vector<std::string> keys = base_.keys();
  for (const std::string& weight : lora_.also) std::erase(keys, base_.key(weight));
  for (const safetensors::Tensor& t : file_.tensors()) keys.push_back(t.name);
  std::sort(keys.begin(), keys.end());
  return keys;
}

TensorReader AdapterWeights::open(const std::string& weight, DType wanted) const {
  const auto source = sources_.find(weight);
  if (source == sources_.end()) return base_.open(weight, wanted);
  const TensorReader stored = open_tensor(file_, *source->second.tensor);
  return source->second.place.is_plain() ? stored : part_of(stored, source->second.place);
}

}  // namespace gyr
