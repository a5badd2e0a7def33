// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/run_advice.hpp"

#include <algorithm>
#include <set>

#include "kernels/base/printable.hpp"

namespace gyr {

namespace {

void check_warmup(const LearningRate& lr, Index steps, std::vector<std::string>& warnings) {
  if (2 * lr.warmup_steps <= steps) return;
  const char* const effect = lr.warmup_steps > steps ? "is longer than the run" : "is more than half of the run";
  const char* const result = lr.warmup_steps > steps ? "the learning rate never reaches optimizer.lr; " : "";
  warnings.push_back(fmt::format("optimizer.warmup_steps = {} {} (train.steps = {}): {}optimizer.warmup_steps={} suits it", lr.warmup_steps, effect,
                                 steps, result, std::max<Index>(1, steps / 20)));
}

void check_decay(const LearningRate& lr, Index steps, std::vector<std::string>& warnings) {
  if (lr.schedule != "constant" && lr.min_lr > lr.lr)
    warnings.push_back(fmt::format("optimizer.min_lr = {:g} is above optimizer.lr = {:g}: the learning rate rises; set optimizer.min_lr={:g}",
                                   lr.min_lr, lr.lr, lr.lr / 10));
  if (lr.schedule == "wsd" && lr.wsd_decay > steps)
    warnings.push_back(
        fmt::format("optimizer.wsd_decay = {} is longer than the run (train.steps = {}): the decay has no stable phase before it; "
                    "optimizer.wsd_decay={} suits it",
                    lr.wsd_decay, steps, std::max<Index>(1, steps / 5)));
}

}  // namespace

std::vector<std::string> doubtful_settings(const RunConfig& run) {
  std::vector<std::string> warnings;
  std::set<std::string> seen;
  for (const std::string& prefix : run.data.prefixes)
    if (!seen.insert(prefix).second)
      warnings.push_back(fmt::format("data.prefixes names {} twice, so its documents are read twice as often", printable(prefix)));
  const Index steps = run.train.steps;
  if (steps == 0) {
    warnings.push_back("train.steps = 0: the run trains nothing; set train.steps to the number of optimizer steps");
    return warnings;
  }
  check_warmup(run.lr, steps, warnings);
  check_decay(run.lr, steps, warnings);
  return warnings;
}

std::string doubtful_evaluation(const RunConfig& run, Index samples) {
  const Index batch = run.largest_batch(), enough = (samples + batch - 1) / batch, batches = run.train.eval_batches;
  if (batches <= enough) return "";
  return fmt::format("train.eval_batches = {} reads the {} sequence{} of the validation split {:.1f} times; train.eval_batches={} reads them once",
                     batches, samples, samples == 1 ? "" : "s", double(batches * batch) / double(samples), enough);
}

}  // namespace gyr
