// SPDX-License-Identifier: BSD-3-Clause
// Looks at the heartbeats of a life from outside, again and again, and says what is wrong with it.
#pragma once

#include <chrono>
#include <map>
#include <set>

#include "src/supervisor/settings.hpp"
#include "src/watch/verdict.hpp"

namespace gyr {

struct Finding {
  std::string state;  // lost: a rank is dead, stopped or cut off; stale: no rank moves
  Verdict verdict;
};

class Observer {
 public:
  Observer(const SuperviseSettings&, std::filesystem::path heartbeats, int life);

  // To be called every few beats. A finding ends the life.
  std::optional<Finding> look();
  // The same once the launcher has gone, as long as the ranks that it has left behind are still there: who is gone with it?
  std::optional<Finding> look_back();
  // "rank 2 on node7 is slow: it works 2.1 times as long as the median rank ...", once for each slow rank.
  std::vector<std::string> slow_ranks();
  // Ranks that were slow, with the words.
  const std::map<int, std::string>& slow() const { return slow_; }
  const std::vector<Heartbeat>& last() const { return now_; }
  Index step() const;  // under way on the rank that is furthest

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    std::int64_t written = 0;
    Clock::time_point changed, gone;
    bool was_alive = false, is_gone = false;
  };
  double stale_limit() const;
  void read(Clock::time_point now);
  void keep_first_gone(std::vector<Heartbeat>& missing) const;
  std::optional<Finding> lost_rank(Clock::time_point now, double patience) const;

  SuperviseSettings settings_;
  std::filesystem::path file_;
  int life_;
  Clock::time_point begin_ = Clock::now(), moved_ = begin_, stepped_ = begin_;
  std::map<int, Seen> seen_;
  std::vector<Heartbeat> now_, window_;  // window_: where the measurement of slowness began
  std::uint64_t progress_ = 0;
  Index step_ = 0;
  std::vector<double> step_seconds_;
  std::map<int, std::string> slow_;
};

}  // namespace gyr
