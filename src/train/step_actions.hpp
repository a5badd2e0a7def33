// SPDX-License-Identifier: BSD-3-Clause
// What is due after a step: a function of its number, the stop request and the deck. All ranks agree on these, so each finds the same.
#pragma once

#include "src/config/run_config.hpp"

namespace gyr {

class StepActions {
 public:
  explicit StepActions(const RunConfig&);

  bool finished(Index step) const { return step == steps_; }
  bool takes_another(Index step, int stop_request) const { return stop_request == 0 && step < steps_; }
  bool checks_replicas(Index step) const { return check_replicas_ > 0 && step % check_replicas_ == 0; }
  // Also before every save, where the step itself has no check.
  bool checks_replicas_to_save(Index step) const { return check_replicas_ > 0 && step % check_replicas_ != 0; }
  // Nothing is validated any more: the run was to stop before its last step, or has lost its folder.
  bool leaves(Index step, int stop_request) const;
  bool validates(Index step) const;
  bool saves(Index step, int stop_request) const;
  // ... on leaving. Where the folder is lost the attempt to save tells of it.
  bool saves_before_exit(Index step, int stop_request, Index last_saved) const;

 private:
  Index steps_, eval_every_, check_replicas_, save_every_;
};

}  // namespace gyr
