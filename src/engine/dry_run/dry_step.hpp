// SPDX-License-Identifier: BSD-3-Clause
// One step of a rank as a dry run. Its engine and grid hold the counts. The placement of memory blocks is computed when
// Engine::measured is called, which takes longer than the step.
#pragma once

#include "src/engine/dry_run/plan.hpp"

namespace gyr {

class DryStep {
 public:
  // `beat` and `known`: see plan_rank.
  DryStep(const EngineConfig&, const Layout&, int position, const std::function<void()>& beat = {}, KnownGemms* known = nullptr);

  Engine& engine() { return engine_; }
  Grid& grid() { return grid_; }
  // Also counts `micros` forward-only micro-batches with validation scores, which need memory too.
  void evaluate(int micros);

 private:
  // Calls `beat` for every activation and gradient that layers report to the hook, so that a dry run can be interrupted
  // there.
  class Pulse : public Hook {
   public:
    explicit Pulse(const std::function<void()>& beat) : beat_(beat) {}
    void micro_batch(int) override {}
    void observe(Observed, const std::string&, const AnyMatrix&, Index, Index, std::span<const Held>) override { beat_(); }
    void gradients_are_reduced() override { beat_(); }

   private:
    const std::function<void()>& beat_;
  };

  MicroBatch batch(Index source_length) const;
  void rehearse_smaller_sources();

  Grid grid_;
  Timers timers_;
  Engine engine_;
  Pulse pulse_;
  KnownGemms* known_;
};

}  // namespace gyr
