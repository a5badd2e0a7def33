// SPDX-License-Identifier: BSD-3-Clause
// Watcher process of a rank: its parent process, which records how the rank ended. A launcher that notices a death may
// kill all other ranks within a millisecond; from outside it cannot be seen then which rank died first. Therefore the
// process that the launcher started forks the rank as its child and becomes the watcher. It keeps the descriptors that
// the launcher watches, waits, writes the exit record, and ends in the same way as the rank.
#pragma once

#include <atomic>
#include <filesystem>

namespace gyr {

class Kept {
 public:
  // Returns in the rank. The rank is killed if its watcher dies. It has its own process group, so that signals to the
  // launcher's group reach it once, from the watcher. Must be called before MPI starts and while there is only one
  // thread. With an empty file name, or if mmap or fork fails, the run continues without a watcher.
  explicit Kept(const std::filesystem::path& exit_record);
  ~Kept();
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  // To be called when all ranks have agreed on the exit code that follows. Afterwards an exit record is written only if
  // a signal ends the rank.
  void agreed();

 private:
  std::atomic<bool>* agreed_ = nullptr;  // true once all ranks agree on the exit code; in memory shared by watcher and rank; null: no watcher
};

}  // namespace gyr
