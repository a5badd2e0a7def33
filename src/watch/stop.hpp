// SPDX-License-Identifier: BSD-3-Clause
// Reasons to stop a run before its last step: a signal, the file STOP, the end of the job's time, or the loss of the
// output folder. Ranks agree on it between steps, save a checkpoint, and exit with code 75. If the folder is lost,
// nothing can be saved and the run ends with Exit::io.
#pragma once

#include <signal.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

namespace gyr {

// Stop reason as a number, over which ranks take the maximum. 0: no stop request; below 1000: a signal number; from
// 1000: one of these.
inline constexpr int stop_file_reason = 1000, walltime_reason = 1001, folder_lost_reason = 1002;
std::string stop_reason(int);  // "SIGTERM", "the file STOP", "train.walltime", "the loss of the output folder"

// Gives SIGHUP the disposition with which the process was started: ignored under nohup, otherwise the default. UCX, below
// MPI, installs a handler that fills the log (UCX_DEBUG_SIGNO).
void restore_hangup();

// Makes writes beyond the limit of file sizes (ulimit -f) fail with an error that is reported, instead of ending the process.
void ignore_file_size_signal();

// Effect of a second SIGINT, as from Ctrl-C twice.
enum class SecondInterrupt { ends, counted };

// While an object exists, SIGTERM, SIGUSR1, SIGINT and SIGHUP are only counted. By default, a second SIGINT ends the
// process as usual. A SIGHUP that the process ignores, as under nohup, stays ignored. Only one object at a time, because signal
// handlers are per process.
class StopSignals {
 public:
  explicit StopSignals(SecondInterrupt = SecondInterrupt::ends);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static int caught();           // last signal received; 0: none
  static int count(int number);  // how many times this signal was received
  static constexpr std::array numbers{SIGTERM, SIGUSR1, SIGINT, SIGHUP};
};

std::filesystem::path stop_file(const std::filesystem::path& output);

// The job's time limit, including the time needed to save a checkpoint before it.
class Walltime {
 public:
  using Clock = std::chrono::steady_clock;
  // seconds 0: no limit. `begin`: start of the job.
  Walltime(double seconds, Clock::time_point begin) : seconds_(seconds), begin_(begin) {}
  // True if it is time to save, given the longest step and the longest save so far. Before the first save, one minute
  // is assumed for it, or a tenth of the time limit if that is less.
  bool over(double longest_step, std::optional<double> longest_save) const;

 private:
  double seconds_;
  Clock::time_point begin_;
};

// Converts "hh:mm:ss", "mm:ss", minutes or Slurm's "days-hh:mm:ss" to seconds; empty: 0. Exit::config for any other text.
double walltime_seconds(const std::string&);

}  // namespace gyr
