// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/steps.hpp"

#include <algorithm>

#include "src/engine/dry_run/plan.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/feed.hpp"
#include "src/verify/gathered.hpp"
#include "src/verify/random_data.hpp"

namespace gyr {

namespace {

constexpr double lr = 1e-3;  // learning rate; fixed, whatever the deck's schedule, so that the update is clearly visible

struct Steps {
  StepOutcome first;
  double loss_after_update = 0;  // loss after the update
};

Steps steps(const RunConfig& run, DType precision, Grid& grid) {
  EngineConfig config = engine_config(run, grid.layout());
  config.precision = precision;
  if (precision != DType::bf16) config.reduce_dtype.reset();  // the limits assume that only the order of summation differs
  config.must_be_finite = false;                              // the comparison detects values that are not finite
  Timers timers(engine_timer_names());
  const Capacity capacity = predicted_capacity(config, grid.layout(), grid.position());
  Engine engine(config, grid, &capacity, timers);
  set_random_weights(engine);
  const MicroBatches batches = feed([&](Index number) { return random_sample(run, number); }, 0, config, grid);
  Steps s;
  engine.on_gradients([&](const std::vector<AnyTensor>&) { s.first.gradients = gathered_gradients(engine); });
  s.first.result = engine.train(batches, config.micros, 1, lr);
  const auto [loss, tokens] = engine.evaluate(batches, config.micros);
  s.loss_after_update = loss / double(tokens);
  return s;
}

RunConfig without_layout(RunConfig run) {
  ParallelConfig& p = run.parallel;
  p.data = p.pipeline = p.context = p.tensor = p.virtual_stages = p.expert = 1;
  p.order.clear(), p.permutation.clear(), p.islands.clear(), p.layers.clear();
  p.sequence = false, p.shard = Shard::none;
  p.mixer = Mixer::split, p.attention_ranks = 0;
  return run;
}

Steps steps_on_one_rank(const RunConfig& run, DType precision, WaitPolicy patience) {
  const RunConfig single_rank = without_layout(run);
  Grid grid(layout_of(single_rank, 1), MPI_COMM_SELF, patience);
  return steps(single_rank, precision, grid);
}

// Name for users, such as "mamba.in_proj".
std::string name_of_kind(const std::string& weight) {
  const std::string kind = kind_of(weight), tail = ".weight";
  return kind.ends_with(tail) ? kind.substr(0, kind.size() - tail.size()) : kind;
}

std::vector<Law> laws_in_bf16(const StepOutcome& exact, const StepOutcome& one, const StepOutcome& many) {
  const Rounding r = rounding_of(exact, one, many);
  return {{"gradient norm", r.norm, limit_in_bf16.norm}, {"gradient error against double, over that of one rank", r.ratio, limit_in_bf16.ratio}};
}

}  // namespace

std::vector<Law> laws_of(const StepOutcome& one, const StepOutcome& many, double loss_one, double loss_many, DType dtype) {
  const Errors errors = errors_of(one, many);
  std::vector<Law> laws{{"loss", errors.loss, limit_of(dtype)},
                        {"gradient norm", errors.norm, limit_of(dtype)},
                        {"loss after the update", relative_error(loss_one, loss_many), limit_of(dtype)}};
  std::map<std::string, Law> kinds;
  for (const auto& [weight, error] : errors.gradients) {
    Law& law = kinds.try_emplace(kind_of(weight), Law{name_of_kind(weight), 0, limit_of(dtype, weight)}).first->second;
    law.error = std::max(law.error, error);
  }
  for (auto& [kind, law] : kinds) laws.push_back(std::move(law));
  return laws;
}

std::vector<Law> compare_with_one_rank(const RunConfig& run, DType precision, Grid& grid, WaitPolicy patience) {
  const Steps many = steps(run, precision, grid);
  std::vector<Law> laws;
  collective_check(grid.world(), [&] {
    if (grid.position() != 0) return;
    const Steps one = steps_on_one_rank(run, precision, patience);
    laws = precision == DType::bf16 ? laws_in_bf16(steps_on_one_rank(run, DType::f64, patience).first, one.first, many.first)
                                    : laws_of(one.first, many.first, one.loss_after_update, many.loss_after_update, precision);
  });
  return laws;
}

}  // namespace gyr
