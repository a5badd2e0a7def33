// SPDX-License-Identifier: BSD-3-Clause
// Overlap of a sample with its neighbours, for models with layers R: how much of a text do its neighbours contain?
//   overlap = targets that occur in the neighbours which their row sees / targets whose row sees the neighbours of a chunk
// Row t predicts token t + 1 and sees the neighbours of chunk floor((t + 1 - m) / m). The first m - 1 rows see none. With separate documents,
// a row sees those of a chunk whose last token is in its document.
#pragma once

#include <algorithm>
#include <optional>
#include <set>

#include "modules/model/model_config.hpp"
#include "src/data/dataset.hpp"

namespace gyr {

// Distinct tokens of all neighbours of a chunk, without padding.
inline std::set<std::int32_t> tokens_of_neighbours(const Sample& s, const RetrievalConfig& c, Index chunk) {
  std::set<std::int32_t> tokens;
  for (Index n = chunk * c.neighbours; n < (chunk + 1) * c.neighbours; ++n) {
    const auto first = s.neighbours.begin() + n * c.neighbour_length();
    tokens.insert(first, first + s.neighbour_lengths.at(std::size_t(n)));
  }
  return tokens;
}

// Empty if no row with a target sees the neighbours of a chunk.
inline std::optional<double> neighbour_overlap(const Sample& s, const RetrievalConfig& c) {
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
