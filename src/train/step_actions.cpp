// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/step_actions.hpp"

#include "src/watch/stop.hpp"

namespace gyr {

StepActions::StepActions(const RunConfig& run)
    : steps_(run.train.steps), eval_every_(run.train.eval_every), check_replicas_(run.train.check_replicas), save_every_(run.checkpoint.every),
      saves_at_end_(run.checkpoint.at_end) {}

bool StepActions::leaves(Index step, int stop_request) const { return stop_request == folder_lost_reason || (stop_request != 0 && !finished(step)); }

bool StepActions::validates(Index step) const { return eval_every_ > 0 && step > 0 && (finished(step) || step % eval_every_ == 0); }

bool StepActions::saves(Index step, int stop_request) const {
  const bool is_due = save_every_ > 0 && step % save_every_ == 0;
  return is_due || (finished(step) ? saves_at_end_ : stop_request != 0);
}

bool StepActions::saves_before_exit(Index step, int stop_request, Index last_saved) const {
  return leaves(step, stop_request) && (stop_request == folder_lost_reason || last_saved != step);
}

}  // namespace gyr
