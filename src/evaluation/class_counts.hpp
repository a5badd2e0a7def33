// SPDX-License-Identifier: BSD-3-Clause
// Predictions of a classifier by class: accuracy, F1 (van Rijsbergen, "Information Retrieval", 1979) and, for few
// classes, the confusion matrix.
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
  std::vector<double>& values() { return counts_; }  // all counts, to be summed over ranks

  double rows() const;
  double accuracy() const;
  // F1 of a class: 2 hits / (rows with this label + rows with this prediction); 0 if there are neither.
  double f1(Index c) const;
  // macro: mean F1 over the classes that occur as label or prediction. micro: F1 of all rows together, equal to the
  // accuracy if every row has one class.
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
  std::vector<double> counts_;  // by class: labels, predictions, hits; for few classes also the confusion matrix
};

}  // namespace gyr
