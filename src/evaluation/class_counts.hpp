// SPDX-License-Identifier: BSD-3-Clause
// What a model took rows of some classes for: accuracy, F1 (van Rijsbergen, "Information Retrieval", 1979) and, of few classes, all counts.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "src/base/json.hpp"

namespace gyr {

class ClassCounts {
 public:
  explicit ClassCounts(std::vector<std::string> names);

  void add(Index is, Index taken_for);
  std::vector<double>& numbers() { return counts_; }  // all of them, for sums over ranks

  double rows() const;
  double accuracy() const;
  // 2 hits / (rows of the class + rows taken for it); 0 where there are neither.
  double f1(Index c) const;
  // The mean over classes that some row is of or taken for; and that of all rows together, which is the accuracy where every row has one class.
  double macro_f1() const, micro_f1() const;

  std::string text() const;
  Json results() const;

 private:
  static constexpr Index most_shown = 16;
  Index count() const { return Index(names_.size()); }
  bool shown() const { return count() <= most_shown; }
  double is(Index c) const { return counts_[c]; }
  double taken(Index c) const { return counts_[count() + c]; }
  double hits(Index c) const { return counts_[2 * count() + c]; }
  double both(Index is, Index taken_for) const { return counts_[(3 + is) * count() + taken_for]; }

  std::vector<std::string> names_;
  std::vector<double> counts_;  // rows of a class, taken for it, both; and where few, of each class taken for each
};

}  // namespace gyr
