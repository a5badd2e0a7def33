// SPDX-License-Identifier: BSD-3-Clause
// One run at a time writes to an output folder: a file in it is locked (flock) while the run lives, names it, and is written anew every second.
//
// Where the file system carries flock from machine to machine that is enough, also for runs that start at the same instant. Where it does not,
// what is written decides: a holder on this machine lives if its process does. One on another machine has ended if its job is known to be over
// or is this job's attempt before, and gives no sign of life for a few beats; or if it gives none for `patience` seconds, by the clock of the one
// that waits. A run that has written its name waits `settle` seconds and looks whether it still stands there; one that finds another's name in
// its file, or no file, has lost the folder and ends. Assumed: what one machine has written and flushed another reads when it opens the
// file anew (NFS's close-to-open), and no process is held up for longer than `settle` between reading a lock and writing to it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "src/base/note.hpp"
#include "src/job/job.hpp"

namespace gyr {

struct LockSettings {
  bool take_over = false;  // from a holder on another machine without asking whether it lives
  double patience = 60;    // seconds
  Note say{};              // is told when there is something to wait for
};

class RunLock {
 public:
  static constexpr const char* of_run = "lock";                    // of the ranks of a run
  static constexpr const char* of_supervisor = "supervisor.lock";  // of gyrfalcon run, also between two attempts of its ranks

  // Exit::io naming host, process and job where another run has the folder; Exit::again where a signal tells to stop while it waits.
  explicit RunLock(const std::filesystem::path& folder, const LockSettings& = {}, const char* name = of_run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  const std::string& note() const { return note_; }       // from whom the folder was taken over, and why
  const std::string& token() const { return me_.token; }  // that no other lock has had
  static std::string token_in(const std::filesystem::path& file);

  // Whether the file is there and names this run; a second old, or looked up now. Once lost it stays so.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  void require_held();  // Exit::io saying what has become of it

 private:
  struct Owner {
    std::string host, boot, token;
    Job job;
    long pid = 0;  // 0: none
    std::string text() const;
  };
  static Owner myself();
  static Owner owner_in(const std::string& text);
  void require_free(const Owner& before, bool locked, const LockSettings&);
  void require_still(const Owner& before, double seconds) const;
  void write(std::uint64_t beat);
  void settle() const;
  void look();  // and beat
  void run();

  const std::filesystem::path folder_, name_;
  const Owner me_ = myself();
  std::string note_, why_lost_;
  int descriptor_;
  bool shared_ = false;
  std::uint64_t beat_ = 0;
  std::atomic<bool> lost_{false};
  std::mutex mutex_;  // of what the thread and require_held() touch
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace gyr
