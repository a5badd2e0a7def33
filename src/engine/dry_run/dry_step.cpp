// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/dry_run/dry_step.hpp"

namespace gyr {

DryStep::DryStep(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat, KnownGemms* known)
    : grid_(Grid::dry_run(layout, position)), timers_(engine_timer_names()), engine_(config, grid_, nullptr, timers_), pulse_(beat), known_(known) {
  if (known_) engine_.device().gemm_cache = *known_;
  if (beat) engine_.stage().set_hook(&pulse_);
  engine_.initialise(0);
  if (config.training) rehearse_smaller_sources();
  engine_.device().clear_work();
  engine_.device().launch_counts.clear();
  if (config.training) engine_.train([&](int) { return batch(config.source_length); }, config.micros, 1, 0);
  else evaluate(config.micros);
  if (known_) *known_ = engine_.device().gemm_cache;
}

void DryStep::evaluate(int micros) {
  Scores unread;
  engine_.evaluate([&](int) { return batch(engine_.config().source_length); }, micros, &unread);
  if (known_) *known_ = engine_.device().gemm_cache;
}

// The counts of a step are those of the largest input.
void DryStep::rehearse_smaller_sources() {
  for (const Index length : engine_.config().smaller_sources) engine_.train([&](int) { return batch(length); }, engine_.config().micros, 1, 0);
  if (engine_.config().smaller_sources.empty()) return;
  engine_.device().gemm_counts.clear();
  grid_.visit([](Communicator& c) { c.clear_traffic(); });
}

MicroBatch DryStep::batch(Index source_length) const {
  MicroBatch shape{engine_.config().micro_batch_size, engine_.config().seq_length, {}, {}};
  shape.source.length = source_length;
  return shape;
}

}  // namespace gyr
