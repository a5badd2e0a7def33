// SPDX-License-Identifier: BSD-3-Clause
#include "modules/settings/weight_pattern.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"

namespace gyr {

// Edit distance row by row: cost[j] is the distance from the pattern so far to the first j letters of the name.
int pattern_distance(std::string_view pattern, std::string_view name) {
  std::vector<int> cost(name.size() + 1), before;
  for (std::size_t j = 0; j <= name.size(); ++j) cost[j] = int(j);
  for (const char letter : pattern) {
    before = cost;
    if (letter != '*') cost[0] += 1;
    for (std::size_t j = 1; j <= name.size(); ++j)
      cost[j] = letter == '*' ? std::min(before[j], cost[j - 1])
                              : std::min({before[j] + 1, cost[j - 1] + 1, before[j - 1] + (letter != '?' && letter != name[j - 1])});
  }
  return cost.back();
}

bool matches_any(std::span<const std::string> patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_patterns(std::string_view key, std::span<const std::string> patterns, std::span<const std::string> weights) {
  for (const std::string& pattern : patterns) {
    if (std::any_of(weights.begin(), weights.end(), [&](const std::string& name) { return matches(pattern, name); })) continue;
    const std::string within = "*" + pattern + "*";  // matches names that contain the pattern
    const auto nearest = std::min_element(weights.begin(), weights.end(), [&](const std::string& a, const std::string& b) {
      return pattern_distance(within, a) < pattern_distance(within, b);
    });
    fail(Exit::config, "{}: '{}' matches no weight of the model; the nearest is {} (* matches any letters; a pattern must match the full name)", key,
         pattern, nearest == weights.end() ? "none" : *nearest);
  }
}

}  // namespace gyr
