// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/run_advice.hpp"

#include <algorithm>
#include <set>

#include "kernels/base/printable.hpp"
#include "modules/cost/flops.hpp"

namespace gyr {

namespace {

// Length of the run in the unit of the schedule.
std::string length_text(const LearningRate& lr, Index length) {
  return lr.unit == ScheduleUnit::steps ? fmt::format("train.steps = {}", length)
                                        : fmt::format("{} {}", length, schedule_units[std::size_t(lr.unit)]);
}

// `first`: position after the first step. A run of one step has no warm-up.
void check_warmup(const LearningRate& lr, Index first, Index length, std::vector<std::string>& warnings) {
  if (2 * lr.warmup_steps <= length) return;
  const Index fitting = std::max(first, length / 20);
  const char* const effect = lr.warmup_steps > length ? "is longer than the run" : "is more than half of the run";
  const char* const result = lr.warmup_steps > length ? "the learning rate never reaches optimizer.lr; " : "";
  warnings.push_back(fmt::format("optimizer.warmup_steps = {} {} ({}): {}optimizer.warmup_steps={} suits it", lr.warmup_steps, effect,
                                 length_text(lr, length), result, 2 * fitting <= length ? fitting : 0));
}

void check_decay(const LearningRate& lr, Index length, std::vector<std::string>& warnings) {
  if (lr.schedule != "constant" && lr.min_lr > lr.lr)
    warnings.push_back(fmt::format("optimizer.min_lr = {:g} is above optimizer.lr = {:g}: the learning rate rises; set optimizer.min_lr={:g}",
                                   lr.min_lr, lr.lr, lr.lr / 10));
  if ((lr.schedule == "wsd" || lr.schedule == "power") && lr.wsd_decay > length)
    warnings.push_back(
        fmt::format("optimizer.wsd_decay = {} is longer than the run ({}): the decay has no stable phase before it; "
                    "optimizer.wsd_decay={} suits it",
                    lr.wsd_decay, length_text(lr, length), std::max<Index>(1, length / 5)));
}

// Other programs count the batch in tokens.
void check_batch(const RunConfig& run, std::vector<std::string>& warnings) {
  constexpr Index most_sequences = 16384;
  constexpr double most_tokens = 1e9;
  const Index batch = run.largest_batch(), length = run.train.seq_length;
  if (batch <= most_sequences || double(batch) * double(length) < most_tokens) return;
  warnings.push_back(
      fmt::format("train.global_batch_size = {} counts sequences of {} tokens: a step reads {:.3g} tokens; if {} tokens are meant, write "
                  "train.global_batch_size={}",
                  batch, length, double(batch) * double(length), batch, std::max<Index>(1, batch / length)));
}

// FP8 is chosen for speed, which an emulation does not have. A deck may also expect full blocks, as GPUs prefer them.
void check_fp8(const RunConfig& run, std::vector<std::string>& warnings) {
  const Fp8Recipe recipe = run.train.fp8;
  if (recipe == Fp8Recipe::none) return;
  warnings.push_back(fmt::format("train.fp8 is emulated: operands are rounded to FP8 and multiplied in {}, so steps take longer than without it",
                                 run.train.precision));
  if (recipe == Fp8Recipe::tensor) return;
  const Index extent = recipe == Fp8Recipe::blocks ? 128 : 32;
  const std::string tail = "_proj.weight";
  std::set<std::string> partial;
  for (const Weight& w : declared_weights(run.model))
    if (w.name.ends_with(tail) && (w.shape[0] % extent != 0 || w.shape[1] % extent != 0)) {
      const auto begin = w.name.rfind('.', w.name.size() - tail.size()) + 1;
      partial.insert(fmt::format("{} ({} x {})", w.name.substr(begin, w.name.rfind('.') - begin), w.shape[0], w.shape[1]));
    }
  if (!partial.empty())
    warnings.push_back(
        fmt::format("train.fp8: the last blocks have less than {} elements, as if padded with zeros, in {}", extent, fmt::join(partial, ", ")));
}

// Answers of older weights pay only if training need not wait for them, and the steps of an iteration make them older still.
void check_staleness(const RunConfig& run, std::vector<std::string>& warnings) {
  if (!run.policy || run.policy->staleness == 0) return;
  if (!run.policy->generation.separate)
    warnings.push_back(
        "rl.staleness = 1 saves no time on ranks that generate and train in turn; let some ranks only generate (rl.generate.ranks, "
        "rl.generate.separate=true), or set rl.staleness=0");
  if (const Index steps = run.policy->steps_of_iteration(); steps > 1)
    warnings.push_back(fmt::format(
        "rl.staleness = 1 with {} steps per iteration: the last step learns from answers of weights that are {} steps older", steps, 2 * steps - 1));
}

}  // namespace

std::vector<std::string> doubtful_settings(const RunConfig& run) {
  std::vector<std::string> warnings;
  std::set<std::string> seen;
  for (const std::string& prefix : run.data.prefixes)
    if (!seen.insert(prefix).second)
      warnings.push_back(fmt::format("data.prefixes names {} twice, so its documents are read twice as often", printable(prefix)));
  check_batch(run, warnings);
  check_fp8(run, warnings);
  check_staleness(run, warnings);
  const Index steps = run.train.steps;
  if (steps == 0) {
    warnings.push_back("train.steps = 0: the run trains nothing; set train.steps to the number of optimizer steps");
    return warnings;
  }
  const Index length = run.schedule_position(steps);
  check_warmup(run.lr, run.schedule_position(1), length, warnings);
  check_decay(run.lr, length, warnings);
  if (run.lr.unit != ScheduleUnit::steps && run.lr.warmup_steps > 0 && run.lr.warmup_steps < run.schedule_position(1))
    warnings.push_back(fmt::format("optimizer.warmup_steps = {} counts {} (optimizer.schedule_unit) and ends within the first step",
                                   run.lr.warmup_steps, schedule_units[std::size_t(run.lr.unit)]));
  return warnings;
}

std::string doubtful_evaluation(const RunConfig& run, Index samples) {
  const Index batch = run.largest_batch(), enough = (samples + batch - 1) / batch, batches = run.train.eval_batches;
  if (batches <= enough) return "";
  return fmt::format("train.eval_batches = {} reads the {} sequence{} of the validation split {:.1f} times; train.eval_batches={} reads them {}",
                     batches, samples, samples == 1 ? "" : "s", double(batches * batch) / double(samples), enough,
                     samples < batch ? fmt::format("{:.1f} times", double(batch) / double(samples)) : "once");
}

}  // namespace gyr
