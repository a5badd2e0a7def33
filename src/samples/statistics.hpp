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

// Course of a metric over the iterations. The noise is that of successive values x_i, which a trend hardly changes (von Neumann):
// noise^2 = sum (x_(i+1) - x_i)^2 / (2 (n - 1)).
struct Trend {
  double rank_correlation = 0;  // Spearman, with the number of the iteration; 0 if undefined
  Index points = 0;
  double first = 0, last = 0;  // levels: means of the first sixteenth of the points, but of two at least, and of the last quarter
  double noise = 0;
  double level_deviation = 0;  // standard deviation of last - first that the noise causes
};
Trend trend_of(std::span<const double> at, std::span<const double> value);

// A course of at least 8 points is a trend by its ranks or by its levels, because a metric that falls early and then stays has a small
// rank correlation. Ranks: the magnitude of the correlation, and its ratio to 1 / sqrt(n - 1), the standard deviation for unrelated
// values. Levels: the difference in units of the noise, and in units of its standard deviation.
inline constexpr Index fewest_points = 8;
inline constexpr double least_rank_correlation = 0.3, least_rank_deviations = 2.6, least_level_noise = 2, least_level_deviations = 4;
bool rises(const Trend&);
bool falls(const Trend&);

double mean_of(std::span<const double> values);  // NaN if there are none

}  // namespace gyr
