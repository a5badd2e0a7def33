// SPDX-License-Identifier: BSD-3-Clause
// Pads encoder inputs of different lengths within one micro-batch.
#pragma once

#include "src/engine/model/chunk.hpp"

namespace gyr {

// Appends the encoder input of the next sequence, padded to the micro-batch's source_length.
inline void append_source(std::span<const Token> source, MicroBatch& m) {
  ensure(Index(source.size()) <= m.source_length, "an encoder input of {} tokens exceeds source_length {}", source.size(), m.source_length);
  if (m.source_length == 0) return;
  const std::size_t before = m.source.size() / std::size_t(m.source_length);
  const bool all_are_full = m.source_lengths.empty() && Index(source.size()) == m.source_length;
  if (!all_are_full) m.source_lengths.resize(before, m.source_length), m.source_lengths.push_back(Index(source.size()));
  m.source.insert(m.source.end(), source.begin(), source.end());
  m.source.resize((before + 1) * std::size_t(m.source_length), 0);
}

}  // namespace gyr
