// SPDX-License-Identifier: BSD-3-Clause
// A mean and its standard error: standard deviation of the sample / sqrt(sample size). NaN for samples of fewer than
// two values.
#pragma once

#include <algorithm>
#include <cmath>

namespace gyr {

class Mean {
 public:
  void add(double x) { add(1, x, x * x); }
  void add(double count, double sum, double squares) { count_ += count, sum_ += sum, squares_ += squares; }

  double count() const { return count_; }
  double sum() const { return sum_; }
  double value() const { return sum_ / count_; }
  double error() const { return std::sqrt(std::max(0.0, squares_ - sum_ * value()) / (count_ - 1) / count_); }

 private:
  double count_ = 0, sum_ = 0, squares_ = 0;
};

}  // namespace gyr
