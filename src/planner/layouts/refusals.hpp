// SPDX-License-Identifier: BSD-3-Clause
// Reasons for rejecting candidate layouts. Reasons whose texts differ only in numbers are merged, and the range of each
// number is reported.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace gyr {

class Refusals {
 public:
  // Index of this reason. A known text returns its existing index.
  int reason(const std::string& text);
  void add(int reason, double layouts) { counts_[std::size_t(reason)] += layouts; }

  struct Line {
    std::string why;  // text of the reason, with differing numbers as a range such as "3 to 4608"
    double layouts = 0;
  };
  std::vector<Line> lines() const;  // reasons sorted by number of rejected layouts, largest first
  double layouts() const;

 private:
  std::map<std::string, int> reasons_;
  std::vector<std::string> texts_;
  std::vector<double> counts_;
};

}  // namespace gyr
