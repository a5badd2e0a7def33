// SPDX-License-Identifier: BSD-3-Clause
// Model families: the supported classes of Hugging Face transformers. A family converts config.json to our settings and
// back, and maps our weight names to tensors of the folder. The files in families/ define them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/huggingface/config_json.hpp"
#include "src/huggingface/stored_place.hpp"

namespace gyr {

class ConfigReader;

struct Family {
  const char* model_type;    // model_type in config.json
  std::string architecture;  // class name in transformers, as in architectures of config.json
  // Reads config.json into reader.config. Throws Exit::data if the file asks for something that is not supported.
  void (*read)(ConfigReader& reader);
  void (*write)(const HuggingFaceConfig&, nlohmann::ordered_json&);
  // Maps a weight of our model to the tensor, or the part of a tensor, that stores it.
  StoredPlace (*place)(const ModelConfig&, const std::string& weight);
  const char* prefix = "";  // prefix of all tensor names except the head's; some published folders omit it
  bool (*is_ignored_tensor)(const std::string& tensor) =
      nullptr;  // true for extra tensors that are not weights and are ignored; null: none are allowed
  // Names of further tensors in which a folder may repeat the weight; null: there are none.
  std::vector<std::string> (*copies)(const ModelConfig&, const std::string& weight) = nullptr;
  bool blocks = false;   // true: folders of this family may store expert matrices in MXFP4 blocks
  bool ternary = false;  // true: the linear layers may be ternary (quantization_config of BitNet, quantized in every forward)
  bool values = false;   // true: reward models, whose scalar head (score.weight) takes the place of the output matrix
  // Model of the text behind a vision tower, whose weights another family maps: those for which `place` has no name; null: `place` maps all.
  ModelConfig (*text)(const ModelConfig&) = nullptr;
  bool own_class = false;  // true: transformers has no class of this name, and a user must define it
};

// All families, in order of preference for export: the first class that can represent a model is used. The first family
// uses our weight names.
const std::vector<Family>& families();
// Finds a class by model_type and class name. If the class name is unknown, returns the first class of that model_type;
// null if there is none.
const Family* find_family(const std::string& model_type, const std::string& architecture = "");
// First family whose config.json represents the model completely, so that writing and reading it gives the same
// function; `preferred` (a model_type) is tried first. Throws Exit::config naming the settings that the nearest family
// cannot represent.
const Family& family_for(const ModelConfig&, const std::string& preferred = "");

// Splits weight names of the form model.layers.N.REST, or BEGIN followed by N.REST, into N and REST. `layer` is -1 for
// other names.
struct LayerName {
  Index layer = -1;
  std::string rest;
};
LayerName layer_name(const std::string& weight, std::string_view begin = "model.layers.");

}  // namespace gyr
