// SPDX-License-Identifier: BSD-3-Clause
#include "src/trace/intervals.hpp"

#include <algorithm>

namespace gyr {

Intervals::Intervals(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (const Interval& i : all)
    if (!parts_.empty() && i.begin <= parts_.back().end) parts_.back().end = std::max(parts_.back().end, i.end);
    else if (i.end > i.begin) parts_.push_back(i);
  double sum = 0;
  for (const Interval& part : parts_) sums_.push_back(sum += part.end - part.begin);
}

double Intervals::before(double time) const {
  const auto next = std::upper_bound(parts_.begin(), parts_.end(), time, [](double t, const Interval& part) { return t < part.begin; });
  if (next == parts_.begin()) return 0;
  const auto last = std::size_t(next - parts_.begin()) - 1;
  return sums_[last] - std::max(0.0, parts_[last].end - time);
}

double Intervals::total_in(const Interval& i) const { return i.end > i.begin ? before(i.end) - before(i.begin) : 0; }

Intervals Intervals::in(const Intervals& other) const {
  std::vector<Interval> common;
  for (auto a = parts_.begin(), b = other.parts_.begin(); a != parts_.end() && b != other.parts_.end();) {
    const Interval both{std::max(a->begin, b->begin), std::min(a->end, b->end)};
    if (both.end > both.begin) common.push_back(both);
    if (a->end < b->end) ++a;
    else ++b;
  }
  return Intervals(std::move(common));
}

}  // namespace gyr
