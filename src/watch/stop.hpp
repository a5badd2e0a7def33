// SPDX-License-Identifier: BSD-3-Clause
// Why a run stops before its last step: a signal, a file, or the end of its time. Ranks agree on it between steps, save, and leave with
// exit code 75.
#pragma once

#include <signal.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

namespace gyr {

// A reason as the number that ranks tell each other: 0 none, a signal's own number, or one of these. The greatest wins.
inline constexpr int stop_file_reason = 1000, walltime_reason = 1001, folder_lost_reason = 1002;
std::string stop_reason(int);  // "SIGTERM", "the file STOP", "train.walltime", "the loss of the output folder"

// SIGTERM, SIGUSR1 and SIGINT only record their number while one of these exists; a second SIGINT ends the process as it always did.
// One at a time: signals are the process'.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static int caught();           // the last one, 0: none so far
  static int count(int number);  // how many times this one
  static constexpr std::array numbers{SIGTERM, SIGUSR1, SIGINT};
};

std::filesystem::path stop_file(const std::filesystem::path& output);

// The end of a job's time, with what is needed to save before it.
class Walltime {
 public:
  using Clock = std::chrono::steady_clock;
  // seconds 0: without end. `begin`: of the job.
  Walltime(double seconds, Clock::time_point begin) : seconds_(seconds), begin_(begin) {}
  // Is it time to save, given how long steps and saves have taken at most? Before the first save it is taken for a minute, or a tenth
  // of the time where that is less.
  bool over(double longest_step, std::optional<double> longest_save) const;

 private:
  double seconds_;
  Clock::time_point begin_;
};

// "hh:mm:ss", "mm:ss" or minutes as seconds; empty: 0. Exit::config where it is none of these.
double walltime_seconds(const std::string&);

}  // namespace gyr
