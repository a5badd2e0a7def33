// SPDX-License-Identifier: BSD-3-Clause
#include "modules/sequence_layout.hpp"

namespace gyr {

Index SequenceLayout::place(Index t) const {
  if (order == SequenceOrder::contiguous) return rank * seq_length + t;
  const Index block = seq_length / 2;
  ensure(2 * block == seq_length, "{} tokens are no two equal blocks", seq_length);
  return t < block ? rank * block + t : (2 * ranks - 2 - rank) * block + t;
}

std::vector<std::int32_t> positions_of(const SequenceLayout& s, std::span<const std::int32_t> packed) {
  ensure(packed.empty() || Index(packed.size()) == s.rows(), "{} positions for {} rows", packed.size(), s.rows());
  std::vector<std::int32_t> positions(packed.begin(), packed.end());
  if (packed.empty())
    for (Index b = 0; b < s.batch; ++b)
      for (Index t = 0; t < s.seq_length; ++t) positions.push_back(std::int32_t(s.past_of(b) + s.place(t)));
  for (Index r = 0; r < Index(packed.size()); ++r) {
    const Index t = r % s.seq_length;
    const bool follows = t > 0 && s.place(t) == s.place(t - 1) + 1;
    ensure(packed[r] == 0 || (packed[r] > 0 && (!follows || packed[r] == packed[r - 1] + 1)),
           "row {} stands at position {} of a document and the row before it at {}", r, packed[r], r > 0 ? packed[r - 1] : -1);
  }
  return positions;
}

}  // namespace gyr
