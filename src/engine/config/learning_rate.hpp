// SPDX-License-Identifier: BSD-3-Clause
// The learning rate as a pure function of the step: linear warm-up, then one of the usual decays.
#pragma once

#include <cstdint>
#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

struct LearningRate {
  std::string schedule;  // decay: constant, linear, cosine, inverse-sqrt, wsd
  double lr, min_lr;
  std::int64_t warmup_steps, decay_steps;  // decay_steps: the step where the decay ends
  std::int64_t wsd_decay;                  // wsd: length of its final decay in steps
  std::string wsd_shape;                   // shape of the final decay of wsd: linear, cosine, exponential, minus-sqrt

  // Learning rate of step `step`, counted from 1.
  double at(std::int64_t step) const;
};

// `steps`: steps of the run; the decay ends there unless the deck sets decay_steps.
LearningRate read_learning_rate(Section&, std::int64_t steps);

}  // namespace gyr
