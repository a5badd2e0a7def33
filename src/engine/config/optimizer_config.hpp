// SPDX-License-Identifier: BSD-3-Clause
// Optimizer settings: deck keys optimizer.*, except the learning rate (learning_rate.hpp).
#pragma once

#include <string>
#include <vector>

#include "modules/optimizers/update_rule.hpp"
#include "modules/settings/settings.hpp"
#include "modules/weights/parameter.hpp"
#include "src/engine/config/width_transfer.hpp"

namespace gyr {

// Factors for parameters whose name matches `pattern` (weight_pattern.hpp), and their update rule, null: that of all.
// If several groups match, the last one counts.
struct ParameterGroup {
  std::string pattern;
  double lr_factor = 1, weight_decay_factor = 1;
  Rule rule = nullptr;
};

struct OptimizerConfig {
  Rule rule = adamw();
  double weight_decay = 0.1;
  WidthTransfer width = {};
  double clip_grad = 1;  // maximum global gradient norm; 0: no clipping
  std::vector<ParameterGroup> groups;
  std::vector<std::string> frozen;  // name patterns of weights that never change, without gradient, moments and master weight

  // The last group that matches, otherwise factors 1; with the factors of the rule and of width transfer.
  ParameterGroup group_of(const Weight&) const;
  const UpdateRule& rule_of(const Weight&) const;
  std::vector<const UpdateRule*> rules() const;  // that weights may have
  // The least over these rules, for lower bounds: states, and values moved per element and step.
  std::size_t fewest_states() const;
  double fewest_values_moved() const;
  // Contents that training stores with a trained weight: the states of its rule, then a master weight.
  std::vector<Content> stored_with(const Weight&) const;

  LoraConfig lora;  // with LoRA only adapters are trained, and the weights that match lora.also

  bool freezes(const Weight&) const;  // true if the weight matches a pattern of `frozen`, or if LoRA trains only other weights
  Trained trained() const;            // predicate: true for weights that learn and are not frozen
};

// `weights`: the names of all weights; every pattern must match at least one.
OptimizerConfig read_optimizer(Section&, const std::vector<std::string>& weights);

}  // namespace gyr
