// SPDX-License-Identifier: BSD-3-Clause
// Pairwise test tables: rows of settings that cover every pair of values, since nearly all errors in combined features
// involve two of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gyr::testing {

// Value (level) of each factor in one row.
using Levels = std::vector<int>;

// Returns at least `least` rows that cover every pair of levels of different factors at least `times` times, as far as
// a valid row contains the pair. `levels`: number of levels of each factor. The result depends only on the seed.
std::vector<Levels> every_pair(const Levels& levels, const std::function<bool(const Levels&)>& valid, int times, std::size_t least,
                               std::uint64_t seed);

}  // namespace gyr::testing
