// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/config/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/limits.hpp"

namespace gyr {

namespace {

// Remaining fraction of lr - min_lr after the fraction x of a decay: from 1 to 0.
double left(const std::string& shape, double x) {
  if (shape == "linear") return 1 - x;
  if (shape == "cosine") return 0.5 * (1 + std::cos(std::numbers::pi * x));
  if (shape == "minus-sqrt") return 1 - std::sqrt(x);
  return 2 * std::pow(0.5, x) - 1;  // exponential: halves over the decay, shifted so that it ends at 0
}

}  // namespace

double LearningRate::at(std::int64_t step) const {
  if (step <= warmup_steps) return lr * double(step) / double(warmup_steps);
  if (schedule == "constant") return lr;
  if (schedule == "inverse-sqrt") return std::max(min_lr, lr * std::sqrt(double(std::max<std::int64_t>(warmup_steps, 1)) / double(step)));
  const std::int64_t begin = schedule == "wsd" ? std::max(warmup_steps, decay_steps - wsd_decay) : warmup_steps;
  if (step <= begin) return lr;
  const double x = std::min(1.0, double(step - begin) / double(std::max<std::int64_t>(1, decay_steps - begin)));
  return min_lr + (lr - min_lr) * left(schedule == "wsd" ? wsd_shape : schedule, x);
}

LearningRate read_learning_rate(Section& s, std::int64_t steps) {
  LearningRate r;
  r.schedule = s.get("schedule", "cosine", "decay of the learning rate after the warm-up; wsd: warmup-stable-decay")
                   .one_of({"constant", "linear", "cosine", "inverse-sqrt", "wsd"});
  r.lr = s.get("lr", 1e-3, "peak learning rate, after the warm-up").at_least(0).finite();
  r.min_lr = s.get("min_lr", 0.0, "learning rate at the end of the decay; inverse-sqrt: lower bound").at_least(0).finite();
  r.warmup_steps = s.get("warmup_steps", 100, "length of the linear warm-up").unit("steps").at_least(0).at_most(most_steps);
  const Index end = s.get("decay_steps", 0, "step where the decay ends; 0: train.steps").unit("steps").at_least(0).at_most(most_steps);
  r.decay_steps = end > 0 ? end : steps;
  r.wsd_decay = s.get("wsd_decay", 100, "wsd: length of the final decay").unit("steps").positive().at_most(most_steps);
  r.wsd_shape = s.get("wsd_shape", "exponential", "wsd: shape of the final decay").one_of({"linear", "cosine", "exponential", "minus-sqrt"});
  return r;
}

}  // namespace gyr
