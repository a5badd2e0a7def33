// SPDX-License-Identifier: BSD-3-Clause
// Checkpoint saves of a run: checks before a save, logs its result, and keeps the last saved step and the longest
// duration. Collective.
#pragma once

#include <map>

#include "src/checkpoint/folder.hpp"
#include "src/train/run_log.hpp"
#include "src/train/run_parts.hpp"
#include "src/train/step_actions.hpp"

namespace gyr {

class Saving {
 public:
  // `log`: null except on the first rank. `last`: step that the run continues from.
  Saving(const RunParts& parts, StateSaver& saver, RunLog* log, Index last);

  // Takes note of a validation of the current state. Returns true if the state must be saved because its loss is the
  // lowest so far (checkpoint.keep_best).
  bool validated(Index step, double loss);
  void save(const CheckpointHeader&);
  void poll();                  // advances a save in progress, without waiting
  void finish();                // waits until nothing is being written
  void require_folder() const;  // Exit::io on all ranks if the output folder is lost

  const std::optional<BestCheckpoint>& best() const { return best_; }  // the checkpoint of checkpoint.keep_best
  Index last() const { return last_; }                                 // number of the last saved step
  std::optional<double> longest_seconds() const { return longest_; }   // seconds of the longest save; empty before the first save is committed

 private:
  void require_folder_after_failure() const;
  template <class Save>
  void take(Save&&);
  void record(const BestCheckpoint&);

  RunParts parts_;
  StepActions step_actions_;
  StateSaver& saver_;
  RunLog* log_;
  Index last_;
  double lowest_;                         // lowest validation loss so far, of saves that are not committed yet, too
  std::map<Index, double> improvements_;  // losses of such saves by step
  std::optional<BestCheckpoint> best_;
  std::string run_;  // id of the run, whose checkpoints may be removed; empty before the first save, and on other ranks than the first
  std::optional<double> longest_;
};

}  // namespace gyr
