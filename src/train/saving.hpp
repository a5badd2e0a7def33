// SPDX-License-Identifier: BSD-3-Clause
// The saves of a run: what must hold before one, what becomes of it, which was the last and how long one has taken at most. Collective.
#pragma once

#include "src/train/run_log.hpp"
#include "src/train/run_parts.hpp"
#include "src/train/step_actions.hpp"

namespace gyr {

class Saving {
 public:
  // `log`: null but on the first rank. `last`: the step that the run goes on from.
  Saving(const RunParts& parts, StateSaver& saver, RunLog* log, Index last)
      : parts_(parts), step_actions_(parts.run), saver_(saver), log_(log), last_(last) {}

  void save(const CheckpointHeader&);
  void poll();                  // takes a save under way further, without waiting
  void finish();                // returns when nothing is being written any more
  void require_folder() const;  // Exit::io on all ranks where it is lost

  Index last() const { return last_; }                                // step saved last
  std::optional<double> longest_seconds() const { return longest_; }  // nothing before the first save is committed

 private:
  template <class Save>
  void take(Save&&);

  RunParts parts_;
  StepActions step_actions_;
  StateSaver& saver_;
  RunLog* log_;
  Index last_;
  std::optional<double> longest_;
};

}  // namespace gyr
