// SPDX-License-Identifier: BSD-3-Clause
// Monitors the heartbeats and the exit record of an attempt from outside and finds lost, stale and slow ranks.
#pragma once

#include <chrono>
#include <map>

#include "kernels/base/error.hpp"
#include "src/supervisor/supervise_settings.hpp"
#include "src/watch/exit_record.hpp"
#include "src/watch/verdict.hpp"

namespace gyr {

struct Finding {
  std::string state;  // lost: a rank is dead, stopped or unreachable; died: a rank exited by itself; stale: no rank makes progress
  Verdict verdict;
  int code = int(Exit::again);  // exit code of the attempt
  std::string host{};           // host of the rank at fault, if an exit record names it
};

class Observer {
 public:
  // Removes the exit record of an earlier run.
  Observer(const SuperviseSettings&, const std::filesystem::path& output, int attempt);

  // Checks the attempt once; to be called every few heartbeats. A finding ends the attempt.
  std::optional<Finding> look(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());
  // Finding from the exit record, if there is one. Valid after the launcher has exited, too.
  std::optional<Finding> finding_of_ranks();
  // New stragglers since the last call: "rank 2 on node7 is slow (straggler): it works 2.1 times as long as ...", once
  // per rank.
  std::vector<std::string> slow_ranks();
  // All stragglers so far, by rank, with these messages.
  const std::map<int, std::string>& slow() const { return slow_; }
  Index step() const;                // highest current step of any rank
  std::string host(int rank) const;  // host name in the rank's heartbeat; empty if it has written none
  int hosts() const;                 // number of hosts with ranks

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    std::int64_t written = 0;
    Clock::time_point changed, gone;
    bool was_alive = false, is_gone = false;
  };
  double stale_limit() const;
  void read(Clock::time_point now);
  std::optional<Finding> lost_rank(Clock::time_point now) const;
  std::vector<Heartbeat> unchanged(Clock::time_point now) const;

  SuperviseSettings settings_;
  std::filesystem::path heartbeats_, exit_record_, new_exit_record_;
  std::optional<ExitRecord> dead_;  // that of this attempt
  int attempt_;
  Clock::time_point begin_ = Clock::now(), moved_ = begin_, stepped_ = begin_;
  std::map<int, Seen> seen_;
  std::vector<Heartbeat> now_, window_;  // window_: heartbeats at the start of the current straggler measurement
  std::uint64_t progress_ = 0;
  Index step_ = 0;
  std::vector<double> step_seconds_;
  std::map<int, std::string> slow_;
};

}  // namespace gyr
