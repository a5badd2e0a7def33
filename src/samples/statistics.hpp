// SPDX-License-Identifier: BSD-3-Clause
// Statistics of a course of values, with n pairs (x, y):
//   Pearson   r = sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean y)^2)
//   Spearman  Pearson's r of the ranks; equal values have the mean of their ranks
// For independent values, r sqrt(n - 1) has about the variance 1.
#pragma once

#include <span>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// NaN for fewer than two pairs, or if x or y is constant.
double pearson(std::span<const double> x, std::span<const double> y);
double spearman(std::span<const double> x, std::span<const double> y);

// Course of a metric over the iterations.
struct Trend {
  double rank_correlation = 0;  // Spearman, with the number of the iteration; 0 if undefined
  Index points = 0;
  double first = 0, last = 0;  // means of the first and of the last quarter of the points
};
Trend trend_of(std::span<const double> at, std::span<const double> value);

// Thresholds from which a course counts as a trend: magnitude of the rank correlation, and of its ratio to the standard deviation
// 1 / sqrt(n - 1) of that of unrelated values. Fewer than 8 points are never a trend.
inline constexpr double least_rank_correlation = 0.5, least_deviations = 2.6;
bool rises(const Trend&);
bool falls(const Trend&);

double mean_of(std::span<const double> values);  // NaN if there are none

}  // namespace gyr
