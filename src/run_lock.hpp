// SPDX-License-Identifier: BSD-3-Clause
// One run at a time writes to an output folder: FOLDER/lock is locked while it lives and says who it is.
#pragma once

#include <filesystem>
#include <string>

namespace gyr {

class RunLock {
 public:
  // Exit::io naming host, process and job where another run has the folder. What a run has left that died on this machine is taken over
  // with a note; whether one on another machine lives nobody can tell, so that needs `take_over`.
  explicit RunLock(const std::filesystem::path& folder, bool take_over = false);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  const std::string& note() const { return note_; }

 private:
  std::string name_, note_;
  int descriptor_;
};

}  // namespace gyr
