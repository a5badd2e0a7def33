// SPDX-License-Identifier: BSD-3-Clause
#include "src/selftest/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "kernels/base/error.hpp"
#include "src/base/quantity.hpp"

namespace gyr::selftest {

namespace {

constexpr double slow_part = 0.8, deviations = 3;
constexpr std::size_t least_compared = 3;  // ranks whose median is meaningful

double median(std::vector<double> x) {
  const auto middle = x.begin() + std::ptrdiff_t(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

using Ranks = std::vector<int>;

std::map<std::string, Ranks> ranks_by_processor(const std::vector<Findings>& all) {
  std::map<std::string, Ranks> ranks;
  for (std::size_t r = 0; r < all.size(); ++r) ranks[all[r].processor].push_back(int(r));
  return ranks;
}

void blame_wrong_bits(const std::vector<Findings>& all, Verdict& v) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].memory_right) v.blames.push_back({int(r), Grade::bad, "memory: a pattern was read back with wrong bits"});
    if (!all[r].repeats) v.blames.push_back({int(r), Grade::bad, "arithmetic: a repeated GEMM gave other bits"});
    if (!all[r].file_right) v.blames.push_back({int(r), Grade::bad, "file: a file was read back with wrong bytes, or could not be written"});
  }
}

// Ranks whose GEMM has other bits than that of most ranks with this processor. Without a majority, none can be blamed.
void blame_other_sums(const std::vector<Findings>& all, const Ranks& ranks, std::size_t precision, Verdict& v) {
  std::map<std::uint64_t, Ranks> by_sum;
  for (const int r : ranks) by_sum[all[std::size_t(r)].sums[precision]].push_back(r);
  if (by_sum.size() < 2) return;
  const auto most = std::ranges::max_element(by_sum, {}, [](const auto& entry) { return entry.second.size(); });
  const bool majority = 2 * most->second.size() > ranks.size();
  if (!majority)
    v.open.push_back(fmt::format("GEMM {}: ranks {} have results of {} kinds, and none of them is the majority's", precisions[precision],
                                 fmt::join(ranks, ", "), by_sum.size()));
  for (const auto& [sum, minority] : by_sum)
    for (const int r : minority)
      if (majority && sum != most->first)
        v.blames.push_back({r, Grade::bad, fmt::format("arithmetic: GEMM {} has other bits than on most equal processors", precisions[precision])});
}

using Pair = std::pair<int, int>;

std::set<Pair> wrong_pairs(const std::vector<Findings>& all) {
  std::set<Pair> wrong;
  for (std::size_t r = 0; r < all.size(); ++r)
    for (const Exchange& e : all[r].exchanges)
      if (!e.right) wrong.insert(std::minmax(int(r), e.partner));
  return wrong;
}

// Number of exchanges of the rank with others than `removed`, and the wrong ones among them.
Pair counts_of(const std::vector<Findings>& all, const std::set<Pair>& wrong, int rank, const std::set<int>& removed) {
  Pair counts{0, 0};
  for (const Exchange& e : all[std::size_t(rank)].exchanges)
    if (!removed.contains(e.partner)) ++counts.first, counts.second += wrong.contains(std::minmax(rank, e.partner));
  return counts;
}

// Ranks with the largest part of wrong exchanges, if that is more than half.
Ranks worst_ranks(const std::vector<Findings>& all, const std::set<Pair>& wrong, const std::set<int>& removed) {
  Ranks worst;
  double most = 0.5;
  for (int r = 0; r < int(all.size()); ++r) {
    if (removed.contains(r)) continue;
    const auto [exchanges, bad] = counts_of(all, wrong, r, removed);
    const double part = exchanges > 0 ? double(bad) / exchanges : 0;
    if (part > most) worst.clear(), most = part;
    if (part == most && part > 0.5) worst.push_back(r);
  }
  return worst;
}

// Blames the ranks with the largest part of wrong exchanges, removes them, and continues with the others. Of ranks that fail
// only with each other, none can be blamed.
void blame_exchanges(const std::vector<Findings>& all, Verdict& v) {
  std::set<Pair> wrong = wrong_pairs(all);
  std::set<int> removed;
  while (!wrong.empty()) {
    const Ranks worst = worst_ranks(all, wrong, removed);
    std::set<int> blamed;
    for (const int r : worst)
      if (std::ranges::any_of(wrong, [&](const Pair& p) {
            return (p.first == r && !std::ranges::count(worst, p.second)) || (p.second == r && !std::ranges::count(worst, p.first));
          }))
        blamed.insert(r);
    if (blamed.empty()) break;
    for (const int r : blamed) {
      const auto [exchanges, bad] = counts_of(all, wrong, r, removed);
      v.blames.push_back({r, Grade::bad, fmt::format("links: {} of {} exchanges failed, with ranks that reach each other", bad, exchanges)});
    }
    removed.insert(blamed.begin(), blamed.end());
    std::erase_if(wrong, [&](const Pair& p) { return blamed.contains(p.first) || blamed.contains(p.second); });
  }
  for (const Pair& p : wrong)
    v.open.push_back(fmt::format("link between rank {} ({}) and rank {} ({}): the exchange failed", p.first, all[std::size_t(p.first)].host, p.second,
                                 all[std::size_t(p.second)].host));
}

// A rate of each rank; 0: not measured.
struct Rates {
  const char* name;
  const char* unit;
  std::function<double(int)> of;
};

void blame_slow(const Ranks& ranks, const Rates& rates, Verdict& v) {
  std::vector<double> measured;
  for (const int r : ranks)
    if (rates.of(r) > 0) measured.push_back(rates.of(r));
  if (measured.size() < least_compared) return;
  const double middle = median(measured);
  std::vector<double> distances;
  for (const double x : measured) distances.push_back(std::abs(x - middle));
  const double spread = median(distances);
  for (const int r : ranks)
    if (const double x = rates.of(r); x > 0 && x < slow_part * middle && middle - x > deviations * spread)
      v.blames.push_back(
          {r, Grade::slow,
           fmt::format("{}: {}, the median of equal processors is {}", rates.name, metric_text(x, rates.unit), metric_text(middle, rates.unit))});
}

// Median speed of a rank's exchanges, each relative to the median of exchanges within a host or between hosts.
std::vector<double> link_speeds(const std::vector<Findings>& all) {
  std::vector<double> kinds[2];
  const auto kind = [&](int r, const Exchange& e) { return all[std::size_t(r)].host == all[std::size_t(e.partner)].host ? 0 : 1; };
  for (int r = 0; r < int(all.size()); ++r)
    for (const Exchange& e : all[std::size_t(r)].exchanges)
      if (e.right && e.seconds > 0) kinds[kind(r, e)].push_back(1 / e.seconds);
  std::vector<double> speeds;
  for (int r = 0; r < int(all.size()); ++r) {
    std::vector<double> own;
    for (const Exchange& e : all[std::size_t(r)].exchanges)
      if (e.right && e.seconds > 0) own.push_back(1 / e.seconds / median(kinds[kind(r, e)]));
    speeds.push_back(own.empty() ? 0 : median(own));
  }
  return speeds;
}

std::vector<Rates> rates_of(const std::vector<Findings>& all) {
  const auto field = [&all](double Findings::*rate) { return [&all, rate](int r) { return all[std::size_t(r)].*rate; }; };
  return {{"memory", "B/s", field(&Findings::memory_rate)},
          {"GEMM", "FLOP/s", field(&Findings::gemm_rate)},
          {"file", "B/s", field(&Findings::file_rate)}};
}

}  // namespace

Verdict verdict_of(const std::vector<Findings>& all, bool rates) {
  Verdict v;
  blame_wrong_bits(all, v);
  const auto groups = ranks_by_processor(all);
  for (const auto& [processor, ranks] : groups)
    for (std::size_t p = 0; p < precisions.size(); ++p) blame_other_sums(all, ranks, p, v);
  blame_exchanges(all, v);
  if (std::ranges::any_of(all, [](const Findings& f) { return !f.collectives_right; }))
    v.open.push_back("an all-reduce or all-to-all of all ranks returned wrong values");
  if (rates) {
    for (const auto& [processor, ranks] : groups)
      for (const Rates& kind : rates_of(all)) blame_slow(ranks, kind, v);
    const std::vector<double> speeds = link_speeds(all);
    Ranks everyone;
    for (int r = 0; r < int(all.size()); ++r) everyone.push_back(r);
    blame_slow(everyone, {"links, relative to the median", "", [&](int r) { return speeds[std::size_t(r)]; }}, v);
  }
  std::ranges::stable_sort(
      v.blames, [](const Blame& a, const Blame& b) { return std::pair(a.grade == Grade::slow, a.rank) < std::pair(b.grade == Grade::slow, b.rank); });
  return v;
}

std::vector<Blame> slower_than(const std::vector<Findings>& earlier, const std::vector<Findings>& now) {
  std::map<std::pair<std::string, int>, int> places;
  for (std::size_t r = 0; r < earlier.size(); ++r) places[{earlier[r].host, earlier[r].place}] = int(r);
  const std::vector<Rates> before = rates_of(earlier), after = rates_of(now);
  std::vector<Blame> slower;
  for (int r = 0; r < int(now.size()); ++r) {
    const auto place = places.find({now[std::size_t(r)].host, now[std::size_t(r)].place});
    if (place == places.end()) continue;
    for (std::size_t i = 0; i < after.size(); ++i)
      if (const double x = after[i].of(r), y = before[i].of(place->second); x > 0 && x < slow_part * y)
        slower.push_back(
            {r, Grade::slow, fmt::format("{}: {}, earlier {}", after[i].name, metric_text(x, after[i].unit), metric_text(y, after[i].unit))});
  }
  return slower;
}

}  // namespace gyr::selftest
