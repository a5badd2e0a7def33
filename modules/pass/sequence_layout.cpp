// SPDX-License-Identifier: BSD-3-Clause
#include "modules/pass/sequence_layout.hpp"

#include <algorithm>

namespace gyr {

Index shared_length(SequenceOrder order, Index seq_length, Index ranks) {
  const Index blocks = order == SequenceOrder::zigzag ? 2 : 1;
  return blocks * ((seq_length + blocks * ranks - 1) / (blocks * ranks));
}

Index SequenceLayout::block(Index of_rank, Index i) const { return i == 0 ? of_rank : 2 * ranks - 1 - of_rank; }

Index SequenceLayout::place(Index t) const {
  const Index length = block_length();
  ensure(blocks() * length == seq_length, "{} tokens cannot be split into {} equal blocks", seq_length, blocks());
  return block(rank, t / length) * length + t % length;
}

TokenPlaces SequenceLayout::places() const {
  TokenPlaces p{seq_length, block_length()};
  for (Index i = 0; i < blocks(); ++i) p.first[i] = place(i * block_length());
  return p;
}

std::vector<std::int32_t> positions_of(const SequenceLayout& s, std::span<const std::int32_t> packed) {
  ensure(packed.empty() || Index(packed.size()) == s.rows(), "{} positions for {} rows", packed.size(), s.rows());
  std::vector<std::int32_t> positions(packed.begin(), packed.end());
  const auto place = [&](Index t) {
    return s.full_tokens > 0 ? std::min(s.place(t), s.full_tokens - 1) : s.place(t);
  };  // padding may have any position
  if (packed.empty())
    for (Index b = 0; b < s.batch; ++b)
      for (Index t = 0; t < s.seq_length; ++t) positions.push_back(std::int32_t(s.past_of(b) + place(t)));
  for (Index r = 0; r < Index(packed.size()); ++r) {
    const Index t = r % s.seq_length;
    const bool follows = t > 0 && s.place(t) == s.place(t - 1) + 1;
    ensure(packed[r] == 0 || (packed[r] > 0 && (!follows || packed[r] == packed[r - 1] + 1)),
           "row {} has position {} in its document, but the row before it has {}", r, packed[r], r > 0 ? packed[r - 1] : -1);
  }
  return positions;
}

std::vector<std::int32_t> tokens_ahead(std::span<const std::int32_t> packed, Index seq_length) {
  std::vector<std::int32_t> ahead(packed.size(), 0);
  for (Index r = Index(packed.size()) - 2; r >= 0; --r)
    if ((r + 1) % seq_length != 0 && packed[r + 1] != 0) ahead[r] = ahead[r + 1] + 1;
  return ahead;
}

}  // namespace gyr
