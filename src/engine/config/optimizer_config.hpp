// SPDX-License-Identifier: BSD-3-Clause
// How weights are updated: deck keys optimizer.*, but for the learning rate (learning_rate.hpp).
#pragma once

#include <string>
#include <vector>

#include "modules/settings/settings.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// Parameters whose name matches `pattern` (weight_pattern.hpp) take these factors; the last matching group counts.
struct ParameterGroup {
  std::string pattern;
  double lr_factor = 1, weight_decay_factor = 1;
};

struct OptimizerConfig {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double clip_grad = 1;  // largest global gradient norm; 0: never clip
  std::vector<ParameterGroup> groups;
  std::vector<std::string> frozen;  // patterns: weights that keep their bits, without gradient, moments and master

  LoraConfig lora;  // where there are adapters, they are trained, and of the rest what they say

  bool freezes(const Weight&) const;  // whether it matches a pattern of `frozen`, or stands beside adapters
  Trained trained() const;            // weights that learn and are not frozen
};

// `weights`: the names of all, one of which each pattern must match.
OptimizerConfig read_optimizer(Section&, const std::vector<std::string>& weights);

}  // namespace gyr
