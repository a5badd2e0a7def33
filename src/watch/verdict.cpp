// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/verdict.hpp"

#include <algorithm>
#include <tuple>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

constexpr double shortest_reported = 0.1;  // seconds; shorter times are not reported, as they would read as 0.0

const Heartbeat* record(const std::vector<Heartbeat>& all, int rank) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Heartbeat& h) { return h.rank == rank; });
  return found == all.end() ? nullptr : &*found;
}

// Element with the smallest `order` among those for which `wanted` is true.
template <class Wanted, class Order>
const Heartbeat* first_of(const std::vector<Heartbeat>& all, Wanted&& wanted, Order&& order) {
  const Heartbeat* found = nullptr;
  for (const Heartbeat& h : all)
    if (wanted(h) && (!found || order(h) < order(*found))) found = &h;
  return found;
}

Verdict named(const Heartbeat& h, const std::string& why) {
  return {h.rank, fmt::format("rank {} on {} (pid {}) {}: {}", h.rank, host_of(h), h.pid, why, whereabouts(h))};
}

double seconds(std::int64_t from, std::int64_t to) { return double(to - from) * 1e-9; }

}  // namespace

std::vector<int> silent(const std::vector<Heartbeat>& before, const std::vector<Heartbeat>& after) {
  std::vector<int> ranks;
  for (const Heartbeat& h : after)
    if (const Heartbeat* old = record(before, h.rank); old && old->written == h.written && !ended(h)) ranks.push_back(h.rank);
  return ranks;
}

Verdict judge(const std::vector<Heartbeat>& before, const std::vector<Heartbeat>& after) {
  if (after.empty()) return {-1, "no rank has written a heartbeat"};
  std::int64_t now = 0;
  for (const Heartbeat& h : after) now = std::max(now, h.written);
  const std::vector<int> quiet = silent(before, after);
  const auto by_record = [](const Heartbeat& h) { return h.written; };
  const auto by_move = [](const Heartbeat& h) { return h.moved; };
  const auto by_place = [](const Heartbeat& h) { return std::tuple(h.step, h.number, h.moved); };
  if (const Heartbeat* h = first_of(
          after, [&](const Heartbeat& r) { return std::find(quiet.begin(), quiet.end(), r.rank) != quiet.end(); }, by_record))
    return named(*h, fmt::format("has written no heartbeat{} (process stopped or dead, or its node is down); last seen at",
                                 seconds(h->written, now) < shortest_reported ? "" : fmt::format(" for {:.1f} s", seconds(h->written, now))));
  if (const Heartbeat* h = first_of(
          after, [](const Heartbeat& r) { return !r.waiting; }, by_move))
    return named(*h, seconds(h->moved, now) < shortest_reported
                         ? "is not waiting and made progress a moment ago, but the other ranks wait for it; it is at"
                         : fmt::format("is stuck: not waiting for anyone, no progress for {:.1f} s; it is at", seconds(h->moved, now)));
  const Heartbeat* h = first_of(
      after, [](const Heartbeat&) { return true; }, by_place);
  return named(*h, "has made less progress than the other ranks, and all ranks wait for each other; it is at");
}

}  // namespace gyr
