// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/predict/failures.hpp"

#include <algorithm>
#include <cmath>

namespace gyr {

double useful_part(double rate, double restart, const Saves& s) {
  const double period = s.every + s.blocks;
  if (rate <= 0) return s.every / period;
  return s.every * std::exp(-rate * s.writes) / (std::expm1(rate * period) * (1 / rate + restart));
}

// Golden-section search over the logarithm of the interval: the useful part has one maximum.
double best_interval(double rate, double restart, Saves s) {
  const double least = std::max({1.0, s.writes, s.blocks});
  double low = std::log(least), high = std::log(std::max(least, 10 / rate));
  const auto part = [&](double logarithm) {
    s.every = std::exp(logarithm);
    return useful_part(rate, restart, s);
  };
  constexpr double ratio = 0.6180339887498949;
  while (high - low > 1e-4) {
    const double a = high - ratio * (high - low), b = low + ratio * (high - low);
    if (part(a) >= part(b)) high = b;
    else low = a;
  }
  return std::exp((low + high) / 2);
}

}  // namespace gyr
