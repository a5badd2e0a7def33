// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/dry_run/dry_step.hpp"

namespace gyr {

DryStep::DryStep(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat, KnownGemms* known)
    : grid_(Grid::dry_run(layout, position)), timers_(engine_timer_names()), engine_(config, grid_, nullptr, timers_), pulse_(beat), known_(known) {
  if (known_) engine_.device().gemm_cache = *known_;
  if (beat) engine_.stage().set_hook(&pulse_);
  engine_.initialise(0);
  engine_.device().clear_work();
  engine_.device().launch_counts.clear();
  if (config.training) engine_.train([&](int) { return batch(); }, config.micros, 1, 0);
  else evaluate(config.micros);
  if (known_) *known_ = engine_.device().gemm_cache;
}

void DryStep::evaluate(int micros) {
  Scores unread;
  engine_.evaluate([&](int) { return batch(); }, micros, &unread);
  if (known_) *known_ = engine_.device().gemm_cache;
}

MicroBatch DryStep::batch() const {
  MicroBatch shape{engine_.config().micro_batch_size, engine_.config().seq_length, {}, {}};
  shape.source_length = engine_.config().source_length;
  return shape;
}

}  // namespace gyr
