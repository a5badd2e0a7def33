// SPDX-License-Identifier: BSD-3-Clause
// Lock of an output folder: only one run at a time writes to it. A file in the folder is locked (flock) while the run
// lives. It names the run and is rewritten every second (a beat).
//
// If the file system propagates flock between machines, this is sufficient, also for runs that start at the same
// instant. Otherwise the content of the file decides:
// - A holder on this machine has ended if its flock is free or its process no longer exists.
// - A holder on another machine has ended if it is a previous attempt of this job, or if its job is known to be over and
//   there is no sign of life for 3 beats. If its job is suspended, the folder stays its own.
// - Any other holder has ended if there is no sign of life for `patience` seconds by the clock of the waiting run.
// With take_over, holders on other machines are not checked. A run that has written its name waits 2 seconds and checks
// that its name is still there. A run that finds another name in its file, or no file, has lost the folder and ends.
// Assumptions: data that one machine has written and flushed is seen by another that opens the file afterwards (NFS
// close-to-open consistency), and no process is delayed for longer than 2 seconds between reading a lock and writing it.
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
  bool take_over = false;                // true: take the folder from a holder on another machine without checking if it is alive
  double patience = 60;                  // seconds without a sign of life until a holder counts as ended
  Note notify{};                         // receives a message if the run has to wait
  std::string choice = "output.folder";  // key or argument that names the folder, for messages
};

class RunLock {
 public:
  static constexpr const char* of_run = "lock";                    // name of the lock file of a run's ranks
  static constexpr const char* of_supervisor = "supervisor.lock";  // name of the lock file of gyrfalcon run, also held between two attempts

  // Exit::io naming host, process and job if another run holds the folder; Exit::again if a stop signal arrives while
  // waiting.
  explicit RunLock(const std::filesystem::path& folder, const LockSettings& = {}, const char* name = of_run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  const std::string& note() const { return note_; }       // previous owner and reason, if the folder was taken over
  const std::string& token() const { return me_.token; }  // random token of this lock, different from all others
  // True if the ranks' lock in this output folder names a holder, alive or dead, on this host whose process ids this
  // process can compare with its own: not of another container and not from before a reboot.
  static bool shares_processes(const std::filesystem::path& folder);
  // The process that holds the ranks' lock or the supervisor's lock in this folder, as in "process 7 on n1, job 12"; empty
  // if none lives. A holder on another machine lives if its lock file was written in the last ten seconds.
  static std::string living_holder(const std::filesystem::path& folder);
  static std::string living_holder_of(const std::filesystem::path& file);  // the same for one of the two lock files
  // Token in a lock file; empty if the file names no owner.
  static std::string token_in(const std::filesystem::path& file);

  // True if the file is gone or names another run, according to the last check (at most a second old). Stays true once
  // set.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  void require_held();  // checks now; Exit::io with the reason if the folder is lost
  // Removes the lock file when the lock is released, instead of emptying it, if this lock has created it.
  void remove_if_created() { removes_ = created_; }

 private:
  struct Owner {
    std::string host, boot, token, pid_namespace;
    Job job;
    long pid = 0;  // process id of the holder; 0: no owner
    std::string text() const;
    bool shares_processes() const;  // this process sees it under its process id, if it lives
  };
  static Owner myself();
  static Owner owner_in(const std::string& text);
  [[noreturn]] void refuse_living(const Owner& before, const LockSettings&) const;
  void require_same_file() const;
  void require_free(const Owner& before, bool locked, const LockSettings&);
  void require_still(const Owner& before, double seconds) const;
  void write(std::uint64_t beat);
  void wait_until_stable() const;
  void look();  // checks that the lock is still held, and writes the next beat
  void run();

  const std::filesystem::path folder_, name_;
  const std::string choice_;
  const Owner me_ = myself();
  std::string note_, why_lost_;
  int descriptor_;  // of the lock file
  bool created_ = false, removes_ = false;
  bool shared_ = false;
  std::uint64_t beat_ = 0;
  std::atomic<bool> lost_{false};
  std::mutex mutex_;  // protects the state that the thread and require_held() share
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace gyr
