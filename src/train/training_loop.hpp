// SPDX-License-Identifier: BSD-3-Clause
// Step after step to the last one or to a stop that all ranks agree on, with what happens between steps: batches with bad numbers are left out
// or gone back before, the model is validated and saved.
#pragma once

#include "src/train/feed.hpp"
#include "src/train/guard.hpp"
#include "src/train/run_start.hpp"
#include "src/train/saving.hpp"

namespace gyr {

class TrainingLoop {
 public:
  // `log`: null but on the first rank. `at`: the state that the engine is in.
  TrainingLoop(const RunParts&, const RunData&, RunStart&, Saving&, RunLog* log, const CheckpointHeader& at);
  // Returns when all steps are done and saved; Exit::again where it was to stop before, with everything saved.
  void run();

 private:
  void remember();
  std::optional<StepReport> step();
  bool traced_step();
  bool timed_step();
  StepReport report(const StepResult&, Index batch, double lr) const;
  bool leave_out(Index step, const StepResult&, const Span& samples);
  void go_back(const Span& samples);
  void validate();
  void finish();
  [[noreturn]] void stopped();
  int own_stop_request() const;
  int agreed_stop_request();
  bool finished() const { return step_actions_.finished(at_.step); }

  RunParts parts_;
  const RunData& data_;
  RunStart& start_;
  Saving& saving_;
  RunLog* log_;
  CheckpointHeader at_;  // where the run stands
  StepActions step_actions_;
  Guard guard_;
  std::vector<Span> skip_;   // samples that no step takes
  Index furthest_;           // step
  int stop_request_ = 0;     // why all ranks stop, 0: they go on
  bool validated_ = false;   // an earlier attempt has validated the step this one begins at
  double longest_step_ = 0;  // seconds
  Index first_ = 0;          // step that this attempt begins at, and when it did
  Walltime::Clock::time_point begin_;
};

}  // namespace gyr
