// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/adapter_config.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "modules/settings/limits.hpp"
#include "src/deck/yaml.hpp"
#include "src/huggingface/json.hpp"

namespace gyr {

namespace {

using json = nlohmann::json;

// Keys that are read below.
constexpr std::string_view read_keys[] = {
    "peft_type",       "r",    "lora_alpha",          "use_rslora",     "target_modules",    "exclude_modules", "target_parameters",
    "modules_to_save", "bias", "layers_to_transform", "layers_pattern", "init_lora_weights", "lora_dropout"};
// Keys that do not change what a stored adapter computes: descriptions, and settings of initial values, of training or
// of options that are refused. PEFT corrects fan_in_fan_out by the class of the layer.
constexpr std::string_view idle_keys[] = {"task_type",         "auto_mapping",   "peft_version",       "base_model_name_or_path",
                                          "revision",          "inference_mode", "fan_in_fan_out",     "loftq_config",
                                          "eva_config",        "corda_config",   "lora_ga_config",     "megatron_core",
                                          "qalora_group_size", "runtime_config", "ensure_weight_tying"};
// Initial values that leave the base weights unchanged.
constexpr std::string_view plain_initializations[] = {"gaussian", "eva", "orthogonal", "mica"};
constexpr const char* remedy = "merge the adapter into the model with PEFT (merge_and_unload), and import the merged folder";

constexpr std::size_t most_names = 4096;  // in a list; each is compared with the name of every weight

bool contains(std::span<const std::string_view> words, std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); }

class ConfigFile {
 public:
  explicit ConfigFile(std::string file) : file_(std::move(file)), keys_(parse_json(read_text(file_, std::size_t(1) << 20), file_)) {
    require(keys_.is_object(), Exit::data, "{}: is not a JSON object", file_);
  }
  const json& operator[](const char* key) const {
    static const json none;
    const auto found = keys_.find(key);
    return found == keys_.end() ? none : *found;
  }
  const json& keys() const { return keys_; }

  void demand(bool holds, std::string_view key, const std::string& what) const { require(holds, Exit::data, "{}: {} {}", file_, shown(key), what); }

  // A list of names, or nothing if the key is missing or null.
  std::vector<std::string> names(const char* key) const {
    const json& list = (*this)[key];
    if (list.is_null()) return {};
    demand(list.is_array() && std::all_of(list.begin(), list.end(), [](const json& name) { return name.is_string(); }), key,
           "is not a list of names; patterns are not supported; write the names as a list");
    demand(list.size() <= most_names, key,
           fmt::format("has {} names; at most {} are supported; select layers by the last part of their names", list.size(), most_names));
    return list;
  }
  // The same for names that PEFT inserts into a regular expression.
  std::vector<std::string> literal_names(const char* key) const {
    const std::vector<std::string> all = names(key);
    for (const std::string& name : all)
      demand(!name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; }), key,
             "contains a regular expression; write names of letters, digits, _ and dots");
    return all;
  }

 private:
  std::string file_;
  json keys_;
};

void refuse_other_keys(const ConfigFile& file) {
  for (const auto& [key, value] : file.keys().items()) {
    if (contains(read_keys, key) || contains(idle_keys, key)) continue;
    const bool none = value.is_null() || value == false || (key.ends_with("_pattern") && value == json::object());
    file.demand(none, key, fmt::format("is set, and this PEFT option is not supported; {}", remedy));
  }
}

void refuse_changed_base(const ConfigFile& file) {
  const json& way = file["init_lora_weights"];
  if (way.is_null() || way.is_boolean()) return;
  std::string word = way.is_string() ? way.get<std::string>() : "";
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  file.demand(contains(plain_initializations, word), "init_lora_weights",
              fmt::format("is {}: PEFT changes the base weights for such an adapter, which is not supported; save it as a plain adapter "
                          "(save_pretrained with path_initial_model_for_weight_conversion), or {}",
                          shown(way.dump()), remedy));
}

void read_scale(const ConfigFile& file, AdapterConfig& c) {
  const json &rank = file["r"], &alpha = file["lora_alpha"], &stabilised = file["use_rslora"], &dropout = file["lora_dropout"];
  file.demand(rank.is_number_integer() && rank > 0 && rank <= widest, "r", "is missing or is not a positive integer (the LoRA rank)");
  file.demand(alpha.is_number() && alpha > 0 && alpha <= 1e30, "lora_alpha", "is missing or is not a positive number");
  file.demand(stabilised.is_null() || stabilised.is_boolean(), "use_rslora", "is not true or false");
  file.demand(dropout.is_null() || dropout.is_number(), "lora_dropout", "is not a number");
  c.rank = rank, c.alpha = alpha;
  if (stabilised == true) c.alpha *= std::sqrt(double(c.rank));
  if (dropout.is_number()) c.dropout = dropout;
}

void read_layer_indices(const ConfigFile& file, AdapterConfig& c) {
  const json& layers = file["layers_to_transform"];
  const auto is_index = [](const json& index) { return index.is_number_integer(); };
  const bool several = layers.is_array() && std::all_of(layers.begin(), layers.end(), is_index);
  file.demand(layers.is_null() || is_index(layers) || several, "layers_to_transform", "is not a layer index or a list of layer indices");
  if (is_index(layers)) c.layers = {layers.get<Index>()};
  else if (several && !layers.empty()) c.layers = layers.get<std::vector<Index>>();
  if (const json& list = file["layers_pattern"]; list.is_string()) {
    if (list != "") c.lists = {list};
  } else {
    c.lists = file.literal_names("layers_pattern");
  }
  file.demand(c.lists.empty() || c.layers, "layers_pattern", "is set without layers_to_transform; set both or none");
  for (const std::string& list : c.lists)
    file.demand(std::all_of(list.begin(), list.end(), [](unsigned char x) { return std::isalnum(x) || x == '_'; }), "layers_pattern",
                "is not the name of a module list, such as layers");
}

void read_layers(const ConfigFile& file, AdapterConfig& c) {
  file.demand(!file["target_modules"].is_null(), "target_modules",
              "is missing or null: PEFT would choose the layers itself; write a list of layer names");
  c.targets = file.names("target_modules");
  if (file["exclude_modules"] != "") c.excluded = file.names("exclude_modules");
  c.parameters = file.names("target_parameters");
  c.saved = file.literal_names("modules_to_save");
  const json& bias = file["bias"];
  file.demand(bias.is_null() || bias == "none" || bias == "all" || bias == "lora_only", "bias", "is not \"none\", \"all\" or \"lora_only\"");
}

bool is_named(const std::string& name, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& n) { return name.ends_with(n) && (name.size() == n.size() || name[name.size() - n.size() - 1] == '.'); });
}

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Index of the layer that a module belongs to. Without names of module lists, it is the first number after two other
// parts of the name; the last part does not count.
std::optional<Index> layer_index(const std::string& module, const std::vector<std::string>& lists) {
  const std::vector<std::string> parts = parts_of(module);
  const auto index_at = [&](std::size_t i) -> std::optional<Index> {
    const bool number =
        !parts[i].empty() && parts[i].size() < 10 && std::all_of(parts[i].begin(), parts[i].end(), [](unsigned char c) { return std::isdigit(c); });
    return number && i + 1 < parts.size() ? std::optional<Index>(std::stoll(parts[i])) : std::nullopt;
  };
  if (lists.empty()) {
    for (std::size_t i = 2; i < parts.size(); ++i)
      if (const auto index = index_at(i)) return index;
    return {};
  }
  for (const std::string& list : lists)
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (parts[i] == list)
        if (const auto index = index_at(i + 1)) return index;
  return {};
}

}  // namespace

bool AdapterConfig::adapts_layer(const std::string& layer) const {
  const auto is_saved = [&](const std::string& module) { return ("." + layer + ".").find("." + module + ".") != std::string::npos; };
  if (is_named(layer, excluded) || std::any_of(saved.begin(), saved.end(), is_saved)) return false;
  if (std::find(targets.begin(), targets.end(), layer) != targets.end()) return true;  // a full name is not subject to `layers`
  if (!is_named(layer, targets)) return false;
  if (!layers) return true;
  const auto index = layer_index(layer, lists);
  return index && std::find(layers->begin(), layers->end(), *index) != layers->end();
}

bool AdapterConfig::adapts_parameter(const std::string& parameter) const { return is_named(parameter, parameters); }

bool AdapterConfig::saves(const std::string& parameter) const {
  for (std::size_t dot = parameter.find('.'); dot != parameter.npos; dot = parameter.find('.', dot + 1)) {
    const std::string_view module = std::string_view(parameter).substr(0, dot);
    if (std::any_of(saved.begin(), saved.end(), [&](const std::string& name) { return module.ends_with(name); })) return true;
  }
  return false;
}

AdapterConfig read_adapter_config(const std::filesystem::path& folder) {
  const ConfigFile file((folder / adapter_config_name).string());
  file.demand(file["peft_type"] == "LORA", "peft_type", "is not LORA; only LoRA adapters are supported");
  refuse_other_keys(file);
  refuse_changed_base(file);
  AdapterConfig c;
  read_scale(file, c);
  read_layers(file, c);
  read_layer_indices(file, c);
  return c;
}

std::string adapter_config_json(const AdapterConfig& c, const BaseModelText& base) {
  nlohmann::ordered_json j;
  j["peft_type"] = "LORA";
  j["task_type"] = base.task_type.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(base.task_type);
  if (base.task_type.empty()) j["auto_mapping"] = {{"base_model_class", base.architecture}, {"parent_library", base.module}};
  j["base_model_name_or_path"] = base.path;
  j["r"] = c.rank, j["lora_alpha"] = c.alpha, j["lora_dropout"] = 0.0, j["bias"] = "none", j["fan_in_fan_out"] = base.transposed;
  j["target_modules"] = c.targets;
  if (!c.parameters.empty()) j["target_parameters"] = c.parameters;
  if (!c.saved.empty()) j["modules_to_save"] = c.saved;
  j["inference_mode"] = true, j["init_lora_weights"] = true;
  return j.dump(2) + "\n";
}

}  // namespace gyr
