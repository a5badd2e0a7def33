// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace gyr {

namespace {

constexpr double undefined = std::numeric_limits<double>::quiet_NaN();

std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0, next = 0; first < order.size(); first = next) {
    while (next < order.size() && values[order[next]] == values[order[first]]) ++next;
    for (std::size_t i = first; i < next; ++i) ranks[order[i]] = double(first + next - 1) / 2;
  }
  return ranks;
}

// True if the course moves in the direction `sign`.
bool moves(const Trend& t, double sign) {
  const double r = sign * t.rank_correlation, change = sign * (t.last - t.first);
  if (t.points < fewest_points || !(change > 0)) return false;
  const bool by_ranks = r >= least_rank_correlation && r * std::sqrt(double(t.points - 1)) >= least_rank_deviations;
  return by_ranks || (change >= least_level_noise * t.noise && change >= least_level_deviations * t.level_deviation);
}

}  // namespace

double mean_of(std::span<const double> values) {
  return values.empty() ? undefined : std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

double pearson(std::span<const double> x, std::span<const double> y) {
  if (x.size() < 2) return undefined;
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xx = 0, yy = 0, xy = 0, scale_x = 0, scale_y = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u = x[i] - mean_x, v = y[i] - mean_y;
    xx += u * u, yy += v * v, xy += u * v;
    scale_x = std::max(scale_x, std::abs(x[i])), scale_y = std::max(scale_y, std::abs(y[i]));
  }
  // Rounding of the mean gives constant values a spread of its own, which must not count.
  const double n = double(x.size()), least = 1e-12;
  if (!(xx > n * std::pow(least * scale_x, 2)) || !(yy > n * std::pow(least * scale_y, 2))) return undefined;
  return xy / std::sqrt(xx * yy);
}

double spearman(std::span<const double> x, std::span<const double> y) { return pearson(ranks_of(x), ranks_of(y)); }

Trend trend_of(std::span<const double> at, std::span<const double> value) {
  Trend t{.points = Index(value.size())};
  if (value.empty()) return t;
  const std::size_t n = value.size(), begin = std::min(n, std::max<std::size_t>(2, n / 16)), end = std::max<std::size_t>(1, n / 4);
  t.first = mean_of(value.first(begin)), t.last = mean_of(value.last(end));
  if (const double r = spearman(at, value); std::isfinite(r)) t.rank_correlation = r;
  double squares = 0;
  for (std::size_t i = 1; i < n; ++i) squares += (value[i] - value[i - 1]) * (value[i] - value[i - 1]);
  t.noise = std::sqrt(squares / (2 * std::max(1.0, double(n) - 1)));
  t.level_deviation = t.noise * std::sqrt(1 / double(begin) + 1 / double(end));
  return t;
}

bool rises(const Trend& t) { return moves(t, 1); }
bool falls(const Trend& t) { return moves(t, -1); }

}  // namespace gyr
