// SPDX-License-Identifier: BSD-3-Clause
// Edit distance by dynamic programming over three rows.
#include "modules/settings/nearest.hpp"

#include <algorithm>
#include <vector>

namespace gyr {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = int(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = int(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> names) {
  constexpr std::size_t longest = 64;  // number of letters compared, which bounds the cost for very long words
  word = word.substr(0, longest);
  std::string best;
  int closest = std::max<int>(2, int(word.size()) / 3) + 1;
  for (const std::string& name : names) {
    const int distance = edit_distance(word, std::string_view(name).substr(0, longest));
    if (distance < closest && distance < int(std::max(word.size(), name.size()))) {
      closest = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace gyr
