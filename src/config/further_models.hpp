// SPDX-License-Identifier: BSD-3-Clause
// Models of a run besides its main one: deck section models. Each has a name, weights of its own and a layout over any
// ranks of the run. The objective defines the names that it reads (Objective::scoring_models).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "modules/model/model_config.hpp"
#include "src/deck/deck.hpp"

namespace gyr {

struct FurtherModel {
  std::string name;
  std::string init_from;  // Hugging Face folder or checkpoint; empty: random weights
  std::string precision;  // empty: train.precision
  std::string ranks;      // as Mesh::read reads them
  int data = 0, pipeline = 0, context = 0, tensor = 0,
      expert = 0;                    // sizes of the axes; data 0: all ranks that the others leave; other 0: as in parallel
  Index micro_batch_size = 0;        // 0: train.micro_batch_size
  Index seq_length = 0;              // of a reward model: tokens of a window of texts; 0: train.seq_length
  std::optional<ModelConfig> model;  // shape of init_from; empty if that was not read
};

// Path of a key of a model, as in models.reference.init_from.
std::string key_of_model(const std::string& name, const std::string& key);
// `shapes`: those of the models, by name; without some of them, the deck can be shown but not run.
std::vector<FurtherModel> read_further_models(Section& models, const std::map<std::string, ModelConfig>& shapes);
// Reads only names and init_from, which decide the shapes.
std::vector<std::pair<std::string, std::string>> read_model_sources(Deck&);

}  // namespace gyr
