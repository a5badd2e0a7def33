// SPDX-License-Identifier: BSD-3-Clause
// The keeper: a parent process of each rank that writes down how the rank ended. A launcher that notices a death may end all other ranks within a
// millisecond, and then it cannot be seen from outside which was the first. So the process that the launcher has started makes the rank its child and
// becomes its keeper: it holds what the launcher watches, waits, and ends the same way once it has written the exit record.
#pragma once

#include <atomic>
#include <filesystem>

namespace gyr {

class Kept {
 public:
  // Returns in the rank, which dies with its keeper and is a process group of its own, so that what is sent to the launcher's group comes
  // to it once, from the keeper. To be made before MPI starts and while there is but one thread. Without a file there is no keeper, nor
  // where the system refuses another process: the run goes on without one.
  explicit Kept(const std::filesystem::path& exit_record);
  ~Kept();
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  // The exit code that comes now is what all ranks have agreed on: no exit record.
  void agreed();

 private:
  std::atomic<bool>* agreed_ = nullptr;  // in memory that keeper and rank share
};

}  // namespace gyr
