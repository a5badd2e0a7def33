// SPDX-License-Identifier: BSD-3-Clause
// Looks at the heartbeats and the exit record of an attempt from outside, again and again, and says what is wrong with it.
#pragma once

#include <chrono>
#include <map>

#include "kernels/base/error.hpp"
#include "src/supervisor/supervise_settings.hpp"
#include "src/watch/verdict.hpp"

namespace gyr {

struct Finding {
  std::string state;  // lost: a rank is dead, stopped or cut off; died: it left by itself; stale: no rank moves
  Verdict verdict;
  int code = int(Exit::again);  // that the attempt ends with
  std::string host{};           // of the rank that is to blame, where an exit record names it
};

class Observer {
 public:
  // Takes away an exit record that an earlier run has left.
  Observer(const SuperviseSettings&, const std::filesystem::path& output, int attempt);

  // To be called every few beats. A finding ends the attempt.
  std::optional<Finding> look(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());
  // What the exit record says, if there is one: also once the launcher has gone.
  std::optional<Finding> finding_of_ranks() const;
  // "rank 2 on node7 is slow: it works 2.1 times as long as the median rank ...", once for each slow rank.
  std::vector<std::string> slow_ranks();
  // Ranks that were slow, with the words.
  const std::map<int, std::string>& slow() const { return slow_; }
  Index step() const;                // under way on the rank that is furthest
  std::string host(int rank) const;  // by its heartbeat, empty: it has had none
  int hosts() const;                 // of all ranks

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

  SuperviseSettings settings_;
  std::filesystem::path heartbeats_, exit_record_;
  int attempt_;
  Clock::time_point begin_ = Clock::now(), moved_ = begin_, stepped_ = begin_;
  std::map<int, Seen> seen_;
  std::vector<Heartbeat> now_, window_;  // window_: where the measurement of slowness began
  std::uint64_t progress_ = 0;
  Index step_ = 0;
  std::vector<double> step_seconds_;
  std::map<int, std::string> slow_;
};

}  // namespace gyr
