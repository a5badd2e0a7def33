// SPDX-License-Identifier: BSD-3-Clause
// LoRA folders of PEFT. The reference is PEFT itself: regression/golden/peft_folders.py draws adapter folders and
// records what PEFT makes of them.
#include <nlohmann/json.hpp>
#include <random>

#include "modules/cost/flops.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint_file.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/checkpoint/writer.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/safetensors.hpp"
#include "src/pretrained/adapters.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr::testing::adapter_folder_suite {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Tensors = std::map<std::string, std::pair<Shape, std::vector<float>>>;

constexpr std::string_view prefix = "base_model.model.", part_a = ".lora_A.weight", part_b = ".lora_B.weight";
const auto quiet = [](const std::string&) {};

fs::path golden_file(const std::string& name) { return fs::path(GYR_SOURCE_DIR) / "regression/golden" / name; }
fs::path model_folder(const std::string& name) {
  const fs::path family = golden_file("families/" + name);
  return fs::exists(family) ? family : golden_file("huggingface/" + name);
}

void write_tensors(const fs::path& file, const Tensors& tensors) {
  std::vector<safetensors::Tensor> headers;
  for (const auto& [name, tensor] : tensors) headers.push_back({name, safetensors::Type::f32, tensor.first});
  safetensors::Writer writer(file, headers);
  for (const auto& [name, tensor] : tensors) writer.write(tensor.second.data(), Index(tensor.second.size() * sizeof(float)));
  writer.commit();
}
Tensors read_tensors(const fs::path& file) {
  const safetensors::Reader reader(file);
  Tensors tensors;
  for (const safetensors::Tensor& t : reader.tensors()) {
    std::vector<float> values(std::size_t(elements(t.shape)));
    if (t.type == safetensors::Type::f32) reader.read(t, full_box(t.shape), values.data(), t.shape, full_box(t.shape));
    tensors[t.name] = {t.shape, values};
  }
  return tensors;
}
Tensors drawn(const Json& shapes, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Tensors tensors;
  for (const auto& [name, shape] : shapes.items()) {
    auto& [dims, values] = tensors[name];
    for (const Json& extent : shape) dims.push_back(Index(extent));
    values.resize(std::size_t(elements(dims)));
    for (float& x : values) x = normal(random);
  }
  return tensors;
}

// The error of f; Exit::internal if it throws an exception of another kind.
template <class F>
Error outcome_of(F&& f) {
  try {
    return error_of(f);
  } catch (const std::exception& error) {
    return Error(Exit::internal, error.what());
  }
}

// Layers with a LoRA adapter in a file.
std::set<std::string> layers_in(const Tensors& tensors) {
  std::set<std::string> layers;
  for (const auto& [name, tensor] : tensors)
    if (name.ends_with(part_a)) layers.insert(name.substr(prefix.size(), name.size() - prefix.size() - part_a.size()));
  return layers;
}

struct Case {
  std::string model;
  Json config, result;
  Tensors tensors;
  std::string text() const { return model + " " + result.dump() + " " + config.dump(); }
  bool is_plain() const { return result.value("plain", false); }
};

std::vector<Case> recorded_cases() {
  std::mt19937 random(seed_of_run());
  const Json all = Json::parse(contents(golden_file("peft_keys.json")));
  std::vector<Case> cases;
  for (const Json& c : all["cases"]) {
    const Json& folder = all["folders"][std::size_t(c["folder"])];
    Case one{folder["model"], all["defaults"], c, drawn(folder["tensors"], random)};
    for (const Json* changes : {&folder["config"], &c["changes"]})
      for (const auto& [key, value] : changes->items()) one.config[key] = value;
    cases.push_back(std::move(one));
  }
  return cases;
}

// Imports the folder of a case into DIR/checkpoint.
Error import_of(const Case& c, const Folder& dir) {
  fs::create_directories(dir / "peft");
  put_contents(dir / "peft/adapter_config.json", c.config.dump());
  write_tensors(dir / "peft/adapter_model.safetensors", c.tensors);
  return outcome_of([&] { import_folder(model_folder(c.model), dir / "checkpoint", true, quiet, dir / "peft"); });
}

// The tensor of a full model folder after PEFT has replaced it by one of the adapter file and added the adapter.
std::vector<double> expected_weight(const Tensors& base, const Case& c, const std::string& name) {
  const auto given = [&](const std::string& key) {
    const auto found = c.tensors.find(std::string(prefix) + key);
    return found == c.tensors.end() ? nullptr : &found->second;
  };
  const std::string spelt = c.model.starts_with("nemotron") && name.starts_with("backbone.") ? "model." + name.substr(9) : name;
  const std::string layer = spelt.substr(0, spelt.rfind('.'));
  const auto* replaced = given(spelt) ? given(spelt) : given(layer + ".base_layer" + spelt.substr(layer.size()));
  const auto& [shape, values] = replaced ? *replaced : base.at(name);
  std::vector<double> w(values.begin(), values.end());
  const auto *a = given(layer + std::string(part_a)), *b = given(layer + std::string(part_b));
  if (!a || !b || !spelt.ends_with(".weight")) return w;
  const Index rank = a->first[0], inputs = a->first[1], outputs = b->first[0];
  const bool transposed = c.model.starts_with("gpt2");
  for (Index i = 0; i < outputs; ++i)
    for (Index j = 0; j < inputs; ++j)
      for (Index r = 0; r < rank; ++r)
        w[std::size_t(transposed ? j * outputs + i : i * inputs + j)] +=
            double(c.result["scales"][layer]) * double(b->second[std::size_t(i * rank + r)]) * double(a->second[std::size_t(r * inputs + j)]);
  return w;
}

void expect_merged_model_of(const Case& c, const Folder& dir) {
  ExportOptions options;
  options.overwrite = true;
  export_folder(dir / "checkpoint", dir / "merged", options, quiet);
  const Tensors base = read_tensors(model_folder(c.model) / "model.safetensors"), merged = read_tensors(dir / "merged/model.safetensors");
  ASSERT_EQ(base.size(), merged.size()) << c.text();
  for (const auto& [name, tensor] : merged) {
    const std::vector<double> expected = expected_weight(base, c, name);
    ASSERT_EQ(expected.size(), tensor.second.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(tensor.second[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << name << " of " << c.text();
  }
}

// The adapter folder that is exported again. Returns false if the export is refused.
bool expect_same_adapters(const Case& c, const Folder& dir) {
  ExportOptions options;
  options.overwrite = options.adapters = true;
  const Error error = outcome_of([&] { export_folder(dir / "checkpoint", dir / "again", options, quiet); });
  if (error.code != Exit::ok) {
    EXPECT_EQ(error.code, Exit::config) << error.what() << c.text();
    return false;
  }
  const Json config = Json::parse(contents(dir / "again/adapter_config.json"));
  for (const auto& [layer, scale] : c.result["scales"].items())
    EXPECT_NEAR(double(config["lora_alpha"]) / double(config["r"]), double(scale), 1e-12 * double(scale)) << c.text();
  const Tensors again = read_tensors(dir / "again/adapter_model.safetensors");
  for (const auto& [name, tensor] : c.tensors) {
    const auto found = again.find(name);
    EXPECT_TRUE(found == again.end() || found->second == tensor) << name << " of " << c.text();
  }
  EXPECT_EQ(layers_in(again), layers_in(c.tensors)) << c.text();
  return true;
}

bool differs(const Json& config, const Json& defaults, const std::string& key) { return config.value(key, Json()) != defaults.value(key, Json()); }

}  // namespace

// Whenever PEFT loads a folder, the imported model is that of PEFT, or the folder is refused.
TEST(adapter_folder, imported_model_equals_peft_or_is_refused) {
  const Json defaults = Json::parse(contents(golden_file("peft_keys.json")))["defaults"];
  std::map<std::string, int> accepted;  // imported folders by key that has no default value
  int imported = 0, refused = 0, again = 0;
  const Folder dir;
  for (const Case& c : recorded_cases()) {
    const Error error = import_of(c, dir);
    if (error.code != Exit::ok) {
      ++refused;
      EXPECT_TRUE(error.code == Exit::data || error.code == Exit::config) << int(error.code) << error.what() << c.text();
      continue;
    }
    if (c.result.contains("error")) continue;  // no result to compare with
    ++imported;
    EXPECT_TRUE(c.is_plain()) << "PEFT does not compute W + s B A with the weights of this folder: " << c.text();
    std::set<std::string> layers;
    for (const auto& [layer, scale] : c.result["scales"].items()) layers.insert(layer);
    EXPECT_EQ(layers, layers_in(c.tensors)) << c.text();
    if (!c.is_plain() || layers != layers_in(c.tensors)) continue;
    expect_merged_model_of(c, dir);
    again += expect_same_adapters(c, dir);
    for (const auto& [key, value] : c.config.items()) accepted[key] += differs(c.config, defaults, key);
  }
  std::printf("%d folders imported as PEFT computes them, %d refused, %d exported again\n", imported, refused, again);
  for (const char* key : {"r",
                          "lora_alpha",
                          "use_rslora",
                          "target_modules",
                          "exclude_modules",
                          "layers_to_transform",
                          "layers_pattern",
                          "bias",
                          "modules_to_save",
                          "init_lora_weights",
                          "lora_dropout",
                          "fan_in_fan_out",
                          "task_type",
                          "auto_mapping",
                          "peft_version",
                          "revision",
                          "inference_mode",
                          "base_model_name_or_path",
                          "megatron_core",
                          "qalora_group_size",
                          "loftq_config"})
    EXPECT_GT(accepted[key], 0) << "no folder with " << key << " is accepted";
  EXPECT_GT(again, 20);
}

namespace {

// Writes a checkpoint of the model with new adapters on these layers.
void write_adapted(const fs::path& folder, const LoraConfig& lora, const fs::path& checkpoint) {
  RunDefaults defaults = defaults_of(folder);
  defaults.model.lora = lora;
  CheckpointHeader header;
  header.deck = deck_of_folder(folder, defaults);
  header.precision = name_of(DType::f32);
  const auto source = open_adapted(folder, defaults.model, 1);
  std::vector<StoredTensor> tensors;
  for (const PlacedTensor& placed : model_weights(defaults.model))
    tensors.push_back(stored_tensor(Content::weight, placed.weight.name, DType::f32, placed.weight.shape));
  CheckpointWriter writer(checkpoint, header, tensors);
  for (const StoredTensor& t : tensors) {
    std::vector<float> values(std::size_t(elements(t.shape)));
    const TensorReader reader = source->open(t.hf_name, DType::f32);
    std::vector<std::byte> stored(std::size_t(elements(t.shape) * size_of(reader.dtype)));
    reader.read(full_box(t.shape), stored.data(), t.shape, full_box(t.shape));
    convert_values(reader.dtype, stored.data(), Index(values.size()), values.data(), reader.name);
    writer.write(0, t.shape[0], values.data());
  }
  writer.commit();
}

// Linear layers that PEFT selects by target_modules, given as a list.
std::set<std::string> selected(const Json& targets, const Json& linear) {
  std::set<std::string> layers;
  for (const std::string layer : linear)
    for (const std::string target : targets)
      if (layer == target || layer.ends_with("." + target)) layers.insert(layer);
  return layers;
}

// How PEFT loads an adapter of this layer: "module", "parameter" or "none".
std::string kind_of(const Json& known, const std::string& layer) { return known["layers"].value(layer, "none"); }

struct ClassDraw {
  const Json& known;
  ModelConfig model;
  std::vector<std::string> layers;                     // our names
  std::map<std::string, std::string> in_transformers;  // our layer -> the layer in memory, as far as it has one of its own
};

// Names of our layers in memory, by the shape and name of the stored tensor.
ClassDraw draw_of(const std::string& name, const Json& known, std::mt19937& random) {
  ClassDraw draw{known, defaults_of(model_folder(name)).model, {}, {}};
  const HuggingFaceConfig config = read_config_json(model_folder(name) / config_file_name);
  const Family& family = *find_family(config.model_type, config.architecture);
  std::vector<std::string> able;
  for (const Weight& w : declared_weights(draw.model)) {
    if (!w.adapts) continue;
    able.push_back(layer_of(w.name));
    const StoredPlace place = family.place(draw.model, w.name);
    std::string layer = layer_of(place.name);
    if (name.starts_with("nemotron")) layer = "model." + layer.substr(layer.find('.') + 1);
    if (place.stack == 0 && place.members == 0) draw.in_transformers[able.back()] = layer;
  }
  std::shuffle(able.begin(), able.end(), random);
  able.resize(1 + random() % able.size());
  if (random() % 2 == 0)  // only layers that PEFT can adapt, so that such draws are frequent
    std::erase_if(able, [&](const std::string& layer) {
      const auto found = draw.in_transformers.find(layer);
      return found == draw.in_transformers.end() || kind_of(known, found->second) == "none";
    });
  draw.layers = able;
  return draw;
}

// target_modules and target_parameters must select exactly the adapted layers, each in the way in which PEFT loads it.
void expect_selected_by_peft(const ClassDraw& draw, const Json& config, const std::string& text) {
  std::set<std::string> by_module, by_parameter;
  for (const std::string& layer : draw.layers) {
    const std::string theirs = draw.in_transformers.at(layer);
    if (kind_of(draw.known, theirs) == "module") by_module.insert(theirs);
    else by_parameter.insert(theirs + ".weight");
  }
  EXPECT_EQ(selected(config["target_modules"], draw.known["linear"]), by_module) << text;
  std::set<std::string> parameters;
  for (const std::string parameter : config.value("target_parameters", Json::array())) parameters.insert(parameter);
  EXPECT_EQ(parameters, by_parameter) << text;
}

}  // namespace

TEST(adapter_folder, exported_adapters_are_loaded_by_peft_or_refused) {
  std::mt19937 random(seed_of_run());
  const Json all = Json::parse(contents(golden_file("peft_classes.json")));
  int exported = 0, refused = 0;
  for (const auto& [name, known] : all["classes"].items())
    for (int trial = 0; trial < 3; ++trial) {
      const ClassDraw draw = draw_of(name, known, random);
      if (draw.layers.empty()) continue;
      const Folder dir;
      LoraConfig lora;
      lora.rank = 1, lora.alpha = 3, lora.targets = draw.layers;
      write_adapted(model_folder(name), lora, dir / "checkpoint");
      const bool able = std::all_of(draw.layers.begin(), draw.layers.end(), [&, &known = known](const std::string& layer) {
        const auto found = draw.in_transformers.find(layer);
        return found != draw.in_transformers.end() && kind_of(known, found->second) != "none";
      });
      ExportOptions options;
      options.adapters = true;
      const Error error = outcome_of([&] { export_folder(dir / "checkpoint", dir / "peft", options, quiet); });
      const std::string text = fmt::format("{}, adapters on {}: {}", name, fmt::join(draw.layers, " "), error.what());
      EXPECT_EQ(error.code, able ? Exit::ok : Exit::config) << text;
      refused += error.code != Exit::ok;
      if (error.code != Exit::ok || !able) continue;
      ++exported;
      const Json config = Json::parse(contents(dir / "peft/adapter_config.json"));
      const Json& tasks = known["task_types"];
      EXPECT_TRUE(std::find(tasks.begin(), tasks.end(), config["task_type"]) != tasks.end()) << config["task_type"] << " for " << text;
      expect_selected_by_peft(draw, config, text);
      std::set<std::string> expected, found;
      for (const std::string& layer : draw.layers)
        for (const std::string_view part : {part_a, part_b}) expected.insert(fmt::format("{}{}{}", prefix, draw.in_transformers.at(layer), part));
      const std::string task = config["task_type"].is_null() ? "null" : config["task_type"].get<std::string>();
      for (const std::string tensor : known["saved"].value(task, Json::array())) expected.insert(std::string(prefix) + tensor);
      for (const auto& [tensor, values] : read_tensors(dir / "peft/adapter_model.safetensors")) found.insert(tensor);
      EXPECT_EQ(found, expected) << text;
    }
  std::printf("%d adapter folders exported as PEFT loads them, %d refused\n", exported, refused);
  EXPECT_GT(exported, 50);
  EXPECT_GT(refused, 10);
}

// The class in transformers has no such modules, so that PEFT would drop the adapters.
TEST(adapter_folder, adapters_of_mtp_modules_are_not_exported) {
  const Folder dir;
  ExportOptions options;
  options.adapters = true;
  LoraConfig lora;
  lora.rank = 1, lora.targets = {"mtp.*"};
  write_adapted(model_folder("deepseek_v3_mtp"), lora, dir / "checkpoint");
  const Error error = outcome_of([&] { export_folder(dir / "checkpoint", dir / "peft", options, quiet); });
  EXPECT_EQ(error.code, Exit::config) << error.what();
  EXPECT_NE(std::string(error.what()).find("is no layer of DeepseekV3ForCausalLM"), std::string::npos) << error.what();
}

}  // namespace gyr::testing::adapter_folder_suite
