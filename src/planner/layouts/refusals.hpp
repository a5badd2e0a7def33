// SPDX-License-Identifier: BSD-3-Clause
// Why layouts were refused: reasons that differ in their numbers alone are told together, with the range of these.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace gyr {

class Refusals {
 public:
  // A place for this reason; of a text that is known, the known one.
  int reason(const std::string& text);
  void add(int reason, double layouts) { counts_[std::size_t(reason)] += layouts; }

  struct Line {
    std::string why;  // its numbers as "3 to 4608" where they differ
    double layouts = 0;
  };
  std::vector<Line> lines() const;  // those of most layouts first
  double layouts() const;

 private:
  std::map<std::string, int> reasons_;
  std::vector<std::string> texts_;
  std::vector<double> counts_;
};

}  // namespace gyr
