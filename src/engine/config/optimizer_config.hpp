// SPDX-License-Identifier: BSD-3-Clause
// Optimizer settings: deck keys optimizer.*, except the learning rate (learning_rate.hpp).
#pragma once

#include <string>
#include <vector>

#include "modules/settings/settings.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// Factors for parameters whose name matches `pattern` (weight_pattern.hpp). Of several matching groups only the last
// one counts.
struct ParameterGroup {
  std::string pattern;
  double lr_factor = 1, weight_decay_factor = 1;
};

struct OptimizerConfig {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double clip_grad = 1;  // maximum global gradient norm; 0: no clipping
  std::vector<ParameterGroup> groups;
  std::vector<std::string> frozen;  // name patterns of weights that never change, without gradient, moments and master weight

  LoraConfig lora;  // with LoRA only adapters are trained, and the weights that match lora.also

  bool freezes(const Weight&) const;  // true if the weight matches a pattern of `frozen`, or if LoRA trains only other weights
  Trained trained() const;            // predicate: true for weights that learn and are not frozen
};

// `weights`: the names of all weights; every pattern must match at least one.
OptimizerConfig read_optimizer(Section&, const std::vector<std::string>& weights);

}  // namespace gyr
