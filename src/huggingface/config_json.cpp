// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/config_json.hpp"

#include "modules/objectives/classes.hpp"
#include "src/deck/yaml.hpp"
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/json.hpp"

namespace gyr {

namespace {

constexpr std::size_t largest_file = std::size_t(1) << 20;

constexpr const char *quantization_key = "quantization_config", *blocks_method = "mxfp4", *ternary_method = "bitnet";
constexpr const char *online_class = "autobitlinear", *online_mode = "online";

// Ternary linear layers (BitNet b1.58) whose weights are stored as trained and quantized in every forward. Packed weights are not read.
void read_ternary(ConfigReader& r, const ConfigReader::json& how) {
  const auto demand = [&](const char* key, const ConfigReader::json& otherwise, const ConfigReader::json& supported, const char* remedy) {
    const ConfigReader::json value = how.contains(key) ? how[key] : otherwise;
    r.demand(value == supported, fmt::format("{}.{}", quantization_key, key), "is {}; supported is {}{}", r.text_of(value), r.text_of(supported),
             remedy);
  };
  const char* const unpacked = ": use the folder with unpacked weights, which is published next to the packed one";
  demand("linear_class", "bitlinear", online_class, unpacked);
  demand("quantization_mode", "offline", online_mode, unpacked);
  demand("use_rms_norm", false, false, "");
  const ConfigReader::json excluded = how.value("modules_to_not_convert", ConfigReader::json());
  r.demand(excluded.is_null() || excluded == ConfigReader::json::array({"lm_head"}), fmt::format("{}.modules_to_not_convert", quantization_key),
           "is {}; supported are null and [\"lm_head\"]", r.text_of(excluded));
  r.config.model.linear = LinearLayers::ternary;
}

// True if the file may hold expert weights in MXFP4 blocks. The tensors themselves decide which ones are;
// modules_to_not_convert only repeats it.
bool read_quantization(ConfigReader& reader, const Family& family) {
  const ConfigReader::json& how = reader.value(quantization_key);
  const ConfigReader::json method = how.is_object() ? how.value("quant_method", ConfigReader::json()) : ConfigReader::json();
  const bool blocks = family.blocks && method == blocks_method, ternary = family.ternary && method == ternary_method;
  if (ternary) read_ternary(reader, how);
  for (const char* key : {quantization_key, "compression_config"})
    reader.demand(reader.value(key).is_null() || ((blocks || ternary) && key == quantization_key), key,
                  "is set: quantized weights are not supported; use the model they were made from");
  return blocks;
}

nlohmann::ordered_json written_blocks() {
  return {{"modules_to_not_convert", {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}},
          {"quant_method", blocks_method}};
}

nlohmann::ordered_json written_ternary() {
  return {{"linear_class", online_class},   {"modules_to_not_convert", nullptr},
          {"quant_method", ternary_method}, {"quantization_mode", online_mode},
          {"rms_norm_eps", 1e-6},           {"use_rms_norm", false}};
}

const Family& family_in(ConfigReader& reader) {
  reader.demand(reader.given("model_type"), "model_type", "is missing: this is not the config.json of a model");
  const ConfigReader::json& type = reader.value("model_type");
  const ConfigReader::json& classes = reader.value("architectures");
  const bool named = classes.is_array() && classes.size() == 1 && classes[0].is_string();
  const Family* const family = type.is_string() ? find_family(type.get<std::string>(), named ? classes[0].get<std::string>() : "") : nullptr;
  std::string names;
  for (const Family& known : families())
    if (&known == find_family(known.model_type)) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", known.model_type);
  reader.demand(family != nullptr, "model_type", "is {}; supported are {}", reader.text_of(type), names);
  return *family;
}

// Reads a reward model. tie_word_embeddings is false because there is no output matrix.
void read_values(ConfigReader& r) {
  const std::size_t labels = r.classes().size();
  r.demand(labels == 1, "id2label", "has {} classes; a reward model has one label (num_labels = 1): the rows of score.weight", labels);
  r.known("problem_type");
  r.config.model.tie_word_embeddings = false;
  r.config.model.objective = reward();
  r.config.ahead.reset();
}

}  // namespace

HuggingFaceConfig parse_config_json(std::string_view text, const std::string& origin) {
  require(text.size() <= largest_file, Exit::data, "{}: has {} bytes; the maximum is {}", origin, text.size(), largest_file);
  const nlohmann::json file = parse_json(text, origin);
  require(file.is_object(), Exit::data, "{}: is not a JSON object", origin);
  ConfigReader reader(file, origin);
  const Family& family = family_in(reader);
  reader.config.model_type = family.model_type, reader.config.architecture = family.architecture;
  reader.config.blocks = read_quantization(reader, family);
  family.read(reader);
  if (family.values) read_values(reader);
  reader.read_training();
  reader.note_unknown_keys();
  return reader.checked();
}

HuggingFaceConfig read_config_json(const std::filesystem::path& file) {
  return parse_config_json(read_text(file.string(), largest_file), file.string());
}

std::string write_config_json(const HuggingFaceConfig& c, const Family& family) {
  nlohmann::ordered_json j;
  j["architectures"] = {family.architecture};
  j["model_type"] = family.model_type;
  if (!c.dtype.empty()) j["dtype"] = c.dtype, j["torch_dtype"] = c.dtype;
  family.write(c, j);
  if (family.values) {
    const std::string label = numbered_classes(1).front();
    j["id2label"] = {{"0", label}}, j["label2id"] = {{label, 0}};
  }
  if (c.model_type == family.model_type)
    for (const auto& [key, text] : c.carried) j[key] = nlohmann::ordered_json::parse(text);
  if (c.blocks && family.blocks) j[quantization_key] = written_blocks();
  if (c.model.linear == LinearLayers::ternary && family.ternary) j[quantization_key] = written_ternary();
  j["use_cache"] = true;
  write_tokens(c, j);
  return j.dump(2) + "\n";
}

std::string write_config_json(const HuggingFaceConfig& c) { return write_config_json(c, family_for(c.model, c.model_type)); }

}  // namespace gyr
