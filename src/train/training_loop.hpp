// SPDX-License-Identifier: BSD-3-Clause
// Runs the steps up to the last one, or to a stop that all ranks agree on. Between steps it skips or rolls back bad
// steps, validates and saves.
#pragma once

#include "src/train/feed.hpp"
#include "src/train/guard.hpp"
#include "src/train/run_start.hpp"
#include "src/train/saving.hpp"
#include "src/train/step_source.hpp"

namespace gyr {

class TrainingLoop {
 public:
  // `log`: null except on the first rank. `at`: the current state of the engine.
  TrainingLoop(const RunParts&, const RunData&, StepSource&, RunStart&, Saving&, RunLog* log, const CheckpointHeader& at);
  // Returns when all steps are done and saved. Exit::again if it was stopped before, with everything saved.
  void run();

 private:
  void remember();
  std::optional<StepReport> step();
  bool traced_step();
  bool timed_step();
  StepReport report(const StepResult&, Index batch, double lr) const;
  bool leave_out(Index step, const StepResult&, const Span& samples);
  void go_back(const Span& samples);
  bool validate();
  void save();
  void report_nothing_left() const;
  void finish();
  [[noreturn]] void stopped();
  int local_stop_request() const;
  int agreed_stop_request();
  bool finished() const { return step_actions_.finished(at_.step); }

  RunParts parts_;
  const RunData& data_;
  StepSource& steps_;
  RunStart& start_;
  Saving& saving_;
  RunLog* log_;
  CheckpointHeader at_;  // current state of the run
  StepActions step_actions_;
  Guard guard_;
  std::vector<Span> skip_;   // samples that no step takes, from data.skip and from rollbacks
  Index furthest_;           // number of the highest step taken so far
  int stop_request_ = 0;     // reason why all ranks stop, 0: they continue
  bool validated_ = false;   // true if an earlier attempt has validated the step at which this one begins
  double longest_step_ = 0;  // duration of the longest step in seconds
  Index first_ = 0;          // number of steps done when this attempt began
  Walltime::Clock::time_point begin_;
};

}  // namespace gyr
