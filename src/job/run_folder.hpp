// SPDX-License-Identifier: BSD-3-Clause
// Ownership of a run's output folder on the run's first rank. Nothing in the folder is modified before take(), and nothing
// but its lock before begin(), so that a start that is refused leaves a finished run as it was. status.json records how
// the run ends.
#pragma once

#include <optional>

#include "src/job/run_lock.hpp"
#include "src/watch/outcome.hpp"

namespace gyr {

class RunFolder {
 public:
  // Creates the folder if needed and locks it. `supervisor`: token of the gyrfalcon run that started this run; any
  // other live supervisor owns the folder even while none of its ranks run. Exit::io.
  void take(const std::filesystem::path& output, const LockSettings&, const std::string& supervisor = "");
  // The start has been accepted: the folder belongs to this run, and status.json has the state "running". Exit::io.
  void begin();
  bool taken() const { return lock_.has_value(); }
  const std::string& note() const { return lock_->note(); }

  // True if the folder was deleted or taken by another run; false on ranks that have not taken it.
  bool lost() const { return lock_ && lock_->lost(); }
  void require_held();  // checks now; Exit::io if the folder is lost
  // Writes status.json while the folder is held; no effect before begin().
  void write_status(const std::string& state, int code, const std::string& message);

 private:
  std::filesystem::path output_;
  std::optional<RunLock> lock_;
  bool begun_ = false;
};

}  // namespace gyr
