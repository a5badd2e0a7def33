// SPDX-License-Identifier: BSD-3-Clause
#include "regression/support/pairs.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "kernels/base/error.hpp"

namespace gyr::testing {

namespace {

constexpr int pool_size = 20000, looked_at = 300;

using Pair = std::tuple<std::size_t, int, std::size_t, int>;  // factor and level of both members

template <class Visit>
void for_pairs(const Levels& row, Visit&& visit) {
  for (std::size_t a = 0; a < row.size(); ++a)
    for (std::size_t b = a + 1; b < row.size(); ++b) visit(Pair{a, row[a], b, row[b]});
}

}  // namespace

// Greedy: each row is the one, among some drawn candidates, that covers most of the pairs still missing.
std::vector<Levels> every_pair(const Levels& levels, const std::function<bool(const Levels&)>& valid, int times, std::size_t least,
                               std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return std::size_t(random() % n); };
  std::vector<Levels> pool;
  std::map<Pair, int> wanted;
  for (int i = 0; i < pool_size; ++i) {
    Levels row;
    for (const int n : levels) row.push_back(int(below(std::size_t(n))));
    if (!valid(row)) continue;
    for_pairs(row, [&](const Pair& pair) { wanted[pair] = times; });
    pool.push_back(std::move(row));
  }
  ensure(!pool.empty(), "none of {} rows is valid", pool_size);
  std::vector<Levels> rows;
  std::size_t missing = wanted.size() * std::size_t(times);
  const auto gain = [&](const Levels& row) {
    int sum = 0;
    for_pairs(row, [&](const Pair& pair) { sum += wanted.at(pair) > 0; });
    return sum;
  };
  while (missing > 0 || rows.size() < least) {
    const Levels* best = nullptr;
    int most = -1;
    // If no drawn candidate covers a missing pair, all candidates are searched.
    for (int i = 0; i < looked_at; ++i)
      if (const Levels& row = pool[below(pool.size())]; gain(row) > most) best = &row, most = gain(row);
    if (most == 0 && missing > 0)
      for (const Levels& row : pool)
        if (gain(row) > most) best = &row, most = gain(row);
    rows.push_back(*best);
    for_pairs(*best, [&](const Pair& pair) {
      int& left = wanted.at(pair);
      missing -= left > 0;
      left = std::max(0, left - 1);
    });
  }
  return rows;
}

}  // namespace gyr::testing
