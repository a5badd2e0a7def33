// SPDX-License-Identifier: BSD-3-Clause
// One step of a rank as a dry run, of which its engine and its grid tell what was counted. Where blocks of memory would lie is worked out when
// Engine::measured is asked, which takes longer than the step.
#pragma once

#include "src/engine/dry_run/plan.hpp"

namespace gyr {

class DryStep {
 public:
  // `beat` and `known`: as of plan_rank.
  DryStep(const EngineConfig&, const Layout&, int position, const std::function<void()>& beat = {}, KnownGemms* known = nullptr);

  Engine& engine() { return engine_; }
  Grid& grid() { return grid_; }
  // So many micro-batches without backwards, and what validation tells, which takes memory too.
  void evaluate(int micros);

 private:
  // Sees every layer pass, and lets the step be interrupted there.
  class Pulse : public Hook {
   public:
    explicit Pulse(const std::function<void()>& beat) : beat_(beat) {}
    void micro_batch(int) override {}
    void observe(Observed, const std::string&, const AnyMatrix&, Index, Index, std::span<const Held>) override { beat_(); }
    void gradients_are_reduced() override { beat_(); }

   private:
    const std::function<void()>& beat_;
  };

  MicroBatch batch() const;

  Grid grid_;
  Timers timers_;
  Engine engine_;
  Pulse pulse_;
  KnownGemms* known_;
};

}  // namespace gyr
