// SPDX-License-Identifier: BSD-3-Clause
// Actions due after a step: a function of step number, stop request and deck. All ranks agree on these, so all decide
// the same.
#pragma once

#include "src/config/run_config.hpp"

namespace gyr {

class StepActions {
 public:
  explicit StepActions(const RunConfig&);

  bool finished(Index step) const { return step >= steps_; }  // a resumed checkpoint may be of a later step
  bool takes_another(Index step, int stop_request) const { return stop_request == 0 && step < steps_; }
  bool checks_replicas(Index step) const { return check_replicas_ > 0 && step % check_replicas_ == 0; }
  // Replicas are also checked before every save, if the step itself has no check.
  bool checks_replicas_to_save(Index step) const { return check_replicas_ > 0 && step % check_replicas_ != 0; }
  // True if the run ends now without a further validation: it was stopped before its last step, or its output folder is
  // lost.
  bool leaves(Index step, int stop_request) const;
  bool validates(Index step) const;
  bool saves(Index step, int stop_request) const;
  // True if the run has to save before it ends. If the output folder is lost, the attempt to save reports that.
  bool saves_before_exit(Index step, int stop_request, Index last_saved) const;

 private:
  Index steps_, eval_every_, check_replicas_, save_every_;
  bool saves_at_end_;
};

}  // namespace gyr
