// SPDX-License-Identifier: BSD-3-Clause
// Learning rate and weight decay as pure functions of the position in the run: linear warm-up, then one of the usual
// decays.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

// Unit of positions and lengths. Samples and tokens are counted after the step.
enum class ScheduleUnit { steps, samples, tokens };
inline constexpr std::array<const char*, 3> schedule_units{"steps", "samples", "tokens"};

struct LearningRate {
  std::string schedule;  // decay: constant, linear, cosine, inverse-sqrt, wsd, power
  double lr, min_lr;
  std::int64_t warmup_steps, decay_steps;  // in the unit of the schedule; decay_steps: the position where the decay ends
  std::int64_t wsd_decay;                  // wsd and power: length of the final decay
  std::string wsd_shape;                   // shape of the final decay: linear, cosine, exponential, minus-sqrt
  double warmup_lr = 0;                    // learning rate where the warm-up begins
  double power_a = 0, power_b = 0;         // power: min(lr, a T^b) after T tokens (Shen et al. 2024)
  ScheduleUnit unit = ScheduleUnit::steps;

  // Learning rate of the step that ends at `position`; step 1 ends at position 1 if the unit is steps.
  double at(std::int64_t position) const;

 private:
  double before_decay(std::int64_t position) const;
};

struct WeightDecay {
  std::string schedule;  // constant, linear, cosine
  double start, end;
  std::int64_t length;  // position where the ramp reaches `end`

  double at(std::int64_t position) const;
};

ScheduleUnit read_schedule_unit(Section&);
// `end`: length of the run in this unit; the decay ends there unless the deck sets decay_steps.
LearningRate read_learning_rate(Section&, ScheduleUnit, std::int64_t end);
// Ramp to `weight_decay` over the length of the learning rate's decay.
WeightDecay read_weight_decay(Section&, double weight_decay, const LearningRate&);

}  // namespace gyr
