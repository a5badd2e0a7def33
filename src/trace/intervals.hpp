// SPDX-License-Identifier: BSD-3-Clause
// Stretches of time, and how much of them lies in others.
#pragma once

#include <vector>

namespace gyr {

struct Interval {
  double begin = 0, end = 0;
};

// What any of some intervals covers.
class Intervals {
 public:
  Intervals() = default;
  explicit Intervals(std::vector<Interval>);

  double total() const { return sums_.empty() ? 0 : sums_.back(); }
  double total_in(const Interval&) const;  // of what lies in there
  Intervals in(const Intervals&) const;    // what both cover

 private:
  double before(double time) const;  // how much lies before it

  std::vector<Interval> parts_;  // apart from each other, in order
  std::vector<double> sums_;     // of the lengths up to each
};

}  // namespace gyr
