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

double LearningRate::before_decay(std::int64_t position) const {
  return schedule == "power" ? std::min(lr, power_a * std::pow(double(std::max<std::int64_t>(position, 1)), power_b)) : lr;
}

double LearningRate::at(std::int64_t position) const {
  if (position <= warmup_steps) return warmup_lr + (before_decay(warmup_steps) - warmup_lr) * double(position) / double(warmup_steps);
  if (schedule == "constant") return lr;
  if (schedule == "inverse-sqrt") return std::max(min_lr, lr * std::sqrt(double(std::max<std::int64_t>(warmup_steps, 1)) / double(position)));
  const bool tail = schedule == "wsd" || schedule == "power";
  const std::int64_t begin = tail ? std::max(warmup_steps, decay_steps - wsd_decay) : warmup_steps;
  if (position <= begin) return before_decay(position);
  const double x = std::min(1.0, double(position - begin) / double(std::max<std::int64_t>(1, decay_steps - begin)));
  return min_lr + (before_decay(begin) - min_lr) * left(tail ? wsd_shape : schedule, x);
}

double WeightDecay::at(std::int64_t position) const {
  if (schedule == "constant" || position >= length) return end;
  return end + (start - end) * left(schedule, double(position) / double(length));
}

ScheduleUnit read_schedule_unit(Section& s) {
  return get_word(
      s, "schedule_unit", ScheduleUnit::steps, {schedule_units.begin(), schedule_units.end()},
      "unit of warmup_steps, decay_steps and wsd_decay; samples (sequences) and tokens suit a batch that grows, and keep the schedule if the "
      "batch changes");
}

namespace {

// Length or position in the schedule.
template <class Length>
auto bounded(Length length, ScheduleUnit unit) {
  return length.unit("steps, or optimizer.schedule_unit").at_most(unit == ScheduleUnit::steps ? most_steps : Index(1) << 53);
}

void check_power(const LearningRate& r) {
  if (r.schedule != "power") return;
  require(r.unit == ScheduleUnit::tokens, Exit::config, "optimizer.schedule = power is a function of tokens: set optimizer.schedule_unit to tokens");
  require(
      r.power_a > 0 && r.power_b < 0, Exit::config,
      "optimizer.schedule = power needs optimizer.power_a above 0 and optimizer.power_b below 0, found {:g} and {:g}: the learning rate is at most "
      "power_a * tokens^power_b",
      r.power_a, r.power_b);
}

}  // namespace

LearningRate read_learning_rate(Section& s, ScheduleUnit unit, std::int64_t end) {
  LearningRate r;
  r.unit = unit;
  r.schedule = s.get("schedule", "cosine",
                     "decay of the learning rate after the warm-up; wsd: warmup-stable-decay; power: power law in tokens, then wsd's decay")
                   .one_of({"constant", "linear", "cosine", "inverse-sqrt", "wsd", "power"});
  r.lr = s.get("lr", 1e-3, "peak learning rate, after the warm-up").at_least(0).finite();
  r.min_lr = s.get("min_lr", 0.0, "learning rate at the end of the decay; inverse-sqrt: lower bound").at_least(0).finite();
  r.warmup_lr = s.get("warmup_lr", 0.0, "learning rate where the linear warm-up begins").at_least(0).finite();
  r.warmup_steps = bounded(s.get("warmup_steps", 100, "length of the linear warm-up").at_least(0), unit);
  const Index given = bounded(s.get("decay_steps", 0, "position where the decay ends; 0: the end of the run").at_least(0), unit);
  r.decay_steps = given > 0 ? given : end;
  r.wsd_decay = bounded(s.get("wsd_decay", 100, "wsd and power: length of the final decay").positive(), unit);
  r.wsd_shape = s.get("wsd_shape", "exponential",
                      "wsd and power: shape of the final decay. After its fraction x, the learning rate is min_lr + (peak - min_lr) f(x); linear: "
                      "f = 1 - x; cosine: f = (1 + cos(pi x)) / 2; exponential: f = 2^(1 - x) - 1; minus-sqrt: f = 1 - sqrt(x)")
                    .one_of({"linear", "cosine", "exponential", "minus-sqrt"});
  r.power_a = s.get("power_a", 0.0, "power: learning rate a T^b after T tokens, as long as it is below lr").at_least(0).finite();
  r.power_b = s.get("power_b", 0.0, "power: exponent b, negative").finite();
  check_power(r);
  return r;
}

WeightDecay read_weight_decay(Section& s, double weight_decay, const LearningRate& r) {
  WeightDecay w{};
  w.schedule = s.get("weight_decay_schedule", "constant",
                     "ramp of the weight decay, from weight_decay_start to weight_decay where the learning rate's decay ends")
                   .one_of({"constant", "linear", "cosine"});
  w.start = s.get("weight_decay_start", 0.0, "weight decay at the beginning of the ramp").at_least(0).finite();
  w.end = weight_decay, w.length = r.decay_steps;
  return w;
}

}  // namespace gyr
