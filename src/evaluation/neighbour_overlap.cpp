// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/neighbour_overlap.hpp"

#include <algorithm>
#include <set>

namespace gyr {

namespace {

// Distinct tokens of all neighbours of a chunk, without padding.
std::set<std::int32_t> tokens_of_neighbours(const Sample& s, const RetrievalConfig& c, Index chunk) {
  std::set<std::int32_t> tokens;
  for (Index n = chunk * c.neighbours; n < (chunk + 1) * c.neighbours; ++n) {
    const auto first = s.neighbours.begin() + n * c.neighbour_length();
    tokens.insert(first, first + s.neighbour_lengths.at(std::size_t(n)));
  }
  return tokens;
}

}  // namespace

std::optional<double> neighbour_overlap(const Sample& s, const RetrievalConfig& c) {
  const Index rows = Index(s.tokens.size()) - 1;
  Index targets = 0, found = 0;
  for (Index first = c.chunk - 1; first < rows; first += c.chunk) {
    const std::set<std::int32_t> seen = tokens_of_neighbours(s, c, first / c.chunk);
    for (Index row = first; row < std::min(rows, first + c.chunk); ++row) {
      const bool sees = s.positions.empty() || row - s.positions[std::size_t(row)] <= first;  // in the document of the chunk's last token
      if (!sees || !s.learned.at(std::size_t(row + 1))) continue;
      ++targets, found += seen.contains(s.tokens[std::size_t(row + 1)]);
    }
  }
  return targets > 0 ? std::optional(double(found) / double(targets)) : std::nullopt;
}

}  // namespace gyr
