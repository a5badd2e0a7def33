// SPDX-License-Identifier: BSD-3-Clause
// A thread in every rank that uses no MPI: it writes the heartbeat, looks for the file STOP, and ends a job that hangs.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "src/watch/heartbeat.hpp"
#include "src/watch/watch_settings.hpp"

namespace gyr {

class Watch {
 public:
  // To be made by the thread that works: it is the one whose backtrace a hang is told with. `end_job`: tells the launcher to end all ranks
  // with this exit code; it is called as the last thing by the one rank that reports the hang, and need not return.
  Watch(const WatchSettings&, const Identity&, std::function<void(int)> end_job);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  ProgressRecord& progress_record() { return progress_record_; }
  // From now on heartbeats are written to this folder, which exists and has none of an earlier run.
  void attach(const std::filesystem::path& output);
  bool stop_file_seen() const { return stop_file_seen_.load(std::memory_order_relaxed); }

 private:
  void run();
  void beat(bool alarm);
  double limit();                           // seconds without progress until the job is ended
  double seconds_without_progress() const;  // ... and those there have been
  bool rest(double seconds);                // false: the rank is done
  // Reads the heartbeats, lets the lowest rank whose watchdog runs name the rank at fault, and ends the process with Exit::again. Returns when the
  // rank moves again.
  void bark();

  const WatchSettings settings_;
  const Identity who_;
  const std::function<void(int)> end_job_;
  const pthread_t worker_;
  ProgressRecord progress_record_;
  std::uint64_t progress_ = 0;                                                         // as last seen by the thread
  std::int64_t moved_;                                                                 // when it last grew, ns since 1970
  std::chrono::steady_clock::time_point moved_at_ = std::chrono::steady_clock::now();  // the same, on the monotonic clock
  std::atomic<bool> stop_file_seen_{false};
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  bool done_ = false;
  std::filesystem::path output_;
  std::optional<HeartbeatFile> file_;
  std::thread thread_;
};

}  // namespace gyr
