// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/cut.hpp"

#include <algorithm>

namespace gyr::retro {

std::vector<Piece> cut(const ProjectSettings& s, std::span<const std::int32_t> tokens, std::span<const std::uint8_t> targets) {
  if (s.end && !tokens.empty() && tokens.back() == *s.end) tokens = tokens.first(tokens.size() - 1);
  std::vector<Piece> pieces;
  const auto size = std::int64_t(tokens.size());
  for (std::int64_t first = 0; first < size; first += s.chunk) {
    const std::int64_t last = std::min(first + s.chunk, size);
    Piece piece{first, last, 0, false};
    for (std::int64_t t = first; t < last; ++t) {
      piece.terms += !s.is_special(tokens[std::size_t(t)]);
      piece.valid |= targets[std::size_t(t)] == 1;
    }
    piece.valid &= piece.terms > 0;
    pieces.push_back(piece);
  }
  return pieces;
}

std::vector<std::int32_t> terms_of(const ProjectSettings& s, std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> terms;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(terms), [&](std::int32_t token) { return !s.is_special(token); });
  std::sort(terms.begin(), terms.end());
  return terms;
}

std::vector<std::int32_t> distinct_terms_of(const ProjectSettings& s, std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> terms = terms_of(s, tokens);
  terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
  return terms;
}

}  // namespace gyr::retro
