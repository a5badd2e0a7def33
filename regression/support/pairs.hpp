// SPDX-License-Identifier: BSD-3-Clause
// Tables that try every pair of settings: mistakes where features are combined are mistakes of two of them, nearly always.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gyr::testing {

// The level of each factor.
using Levels = std::vector<int>;

// At least `least` rows in which each two levels of different factors, as far as a valid row has them both, occur together at least `times`
// times. `levels`: how many each factor has. The rows are a function of the seed.
std::vector<Levels> every_pair(const Levels& levels, const std::function<bool(const Levels&)>& valid, int times, std::size_t least,
                               std::uint64_t seed);

}  // namespace gyr::testing
