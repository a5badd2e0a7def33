// SPDX-License-Identifier: BSD-3-Clause
// The output folder of a run, as the run's first rank has it: from take() on its own, and nothing in it is touched before. status.json says how
// the run ends.
#pragma once

#include <optional>

#include "src/job/run_lock.hpp"
#include "src/watch/outcome.hpp"

namespace gyr {

class RunFolder {
 public:
  // Makes the folder where it is not there. `supervisor`: token of the gyrfalcon run that has started this one; any other one that lives has
  // the folder even while none of its ranks do. Exit::io.
  void take(const std::filesystem::path& output, const LockSettings&, const std::string& supervisor = "");
  bool taken() const { return lock_.has_value(); }
  const std::string& note() const { return lock_->note(); }

  // Whether it has been deleted, or taken by another run. On ranks that have not taken it: false.
  bool lost() const { return lock_ && lock_->lost(); }
  void require_held();  // Exit::io where it is lost, looked up now
  // Into status.json, while the folder is held.
  void say(const std::string& state, int code, const std::string& message);

 private:
  std::filesystem::path output_;
  std::optional<RunLock> lock_;
};

}  // namespace gyr
