// SPDX-License-Identifier: BSD-3-Clause
// Classes of models that Hugging Face's transformers has, in our terms: settings to and from config.json, and what each weight is called there.
// A file of families/ defines some and registers them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/huggingface/config_json.hpp"
#include "src/huggingface/stored_place.hpp"

namespace gyr {

class ConfigReader;

struct Family {
  const char* model_type;    // of config.json
  const char* architecture;  // the class
  // Reads the settings into reader.config; Exit::data where the file asks for what the model has not.
  void (*read)(ConfigReader& reader);
  void (*write)(const HuggingFaceConfig&, nlohmann::ordered_json&);
  // Where a weight of the model lies in the file.
  StoredPlace (*place)(const ModelConfig&, const std::string& weight);
  const char* prefix = "";                                         // of all names but the head's, which folders may leave out
  bool (*is_ignored_tensor)(const std::string& tensor) = nullptr;  // tensors that are no weights and may be there; null: none may
  // Under which further names a folder may hold a weight once more; null: under none.
  std::vector<std::string> (*copies)(const ModelConfig&, const std::string& weight) = nullptr;
  bool blocks = false;  // folders may hold matrices of experts in blocks of 4 bits
};

// In the order in which a model that several can say is given to one; the first calls weights as we do.
const std::vector<Family>& families();
// The class of this name, of this model_type, or the first one of that; null where there is none.
const Family* find_family(const std::string& model_type, const std::string& architecture = "");
// The first family, `preferred` before the others, whose config.json says everything of the model: what it reads back computes the same.
// Exit::config naming what stands in the way of the nearest one.
const Family& family_for(const ModelConfig&, const std::string& preferred = "");

// Weights called model.layers.N.REST, or N.REST behind another beginning, with N and REST apart; `layer` is -1 for others.
struct LayerName {
  Index layer = -1;
  std::string rest;
};
LayerName layer_name(const std::string& weight, std::string_view begin = "model.layers.");

}  // namespace gyr
