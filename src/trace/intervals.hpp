// SPDX-License-Identifier: BSD-3-Clause
// Sets of time intervals, their total length and their intersections.
#pragma once

#include <vector>

namespace gyr {

struct Interval {
  double begin = 0, end = 0;
};

// Union of several intervals.
class Intervals {
 public:
  Intervals() = default;
  explicit Intervals(std::vector<Interval>);

  double total() const { return sums_.empty() ? 0 : sums_.back(); }
  double total_in(const Interval&) const;  // length of the union inside the given interval
  Intervals in(const Intervals&) const;    // intersection with another union

 private:
  double before(double time) const;  // length of the union before `time`

  std::vector<Interval> parts_;  // disjoint intervals in ascending order
  std::vector<double> sums_;     // cumulative lengths of parts_
};

}  // namespace gyr
