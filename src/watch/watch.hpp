// SPDX-License-Identifier: BSD-3-Clause
// A thread in every rank that uses no MPI: it writes the heartbeat, checks for the file STOP (on rank 0), and ends a
// hanging job.
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
  // Must be created by the main thread, whose backtrace is written on a hang. `end_job` makes the launcher end all
  // ranks with this exit code. Only the rank that reports the hang calls it, as its last action; it need not return.
  Watch(const WatchSettings&, const Identity&, std::function<void(int)> end_job);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  ProgressRecord& progress_record() { return progress_record_; }
  // Starts writing heartbeats to this folder, which must exist and contain none of an earlier run.
  void attach(const std::filesystem::path& output);
  bool stop_file_seen() const { return stop_file_seen_.load(std::memory_order_relaxed); }

 private:
  void run();
  void beat(bool alarm);
  double limit();                           // seconds without progress until the job is ended
  double seconds_without_progress() const;  // seconds without progress so far
  bool rest(double seconds);                // waits; returns false if the rank is done
  // Reads the heartbeats and ends the process with Exit::again. The lowest rank with a running watchdog reports the
  // rank at fault. Returns if the rank makes progress again or ends.
  void bark();

  const WatchSettings settings_;
  const Identity who_;
  const std::function<void(int)> end_job_;
  const pthread_t worker_;
  ProgressRecord progress_record_;
  std::uint64_t progress_ = 0;                                                         // progress counter as last read by this thread
  std::int64_t moved_;                                                                 // time when progress_ last grew, ns since 1970
  std::chrono::steady_clock::time_point moved_at_ = std::chrono::steady_clock::now();  // time when progress_ last grew, on the monotonic clock
  std::atomic<bool> stop_file_seen_{false};
  std::mutex mutex_;  // protects the members declared after it
  std::condition_variable wake_;
  bool done_ = false;
  std::filesystem::path output_;
  std::optional<HeartbeatFile> file_;
  std::thread thread_;
};

}  // namespace gyr
