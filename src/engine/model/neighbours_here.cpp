// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/model/neighbours_here.hpp"

#include "modules/context/neighbour_halo.hpp"

namespace gyr {

std::vector<QueriedNeighbour> queried_neighbours(const SequenceLayout& s, const RetrievalConfig& c) {
  const Index chunks = s.full_length() / c.chunk, of_block = s.block_length() / c.chunk;
  std::vector<QueriedNeighbour> all;
  for (Index n = 0; n < c.neighbours; ++n) {
    const auto add = [&](Index b, Index chunk, const QueriedNeighbour& rows) {
      all.push_back(rows), all.back().index = (n * s.batch + b) * chunks + chunk;
    };
    for (Index b = 0; b < s.batch; ++b)
      for (Index t = 0; t < s.seq_length; t += c.chunk) add(b, s.place(t) / c.chunk, {0, c.chunk, b * s.seq_length + t + c.chunk - 1, 0});
    for (Index b = 0; b < s.batch && chunks_before_blocks(s, c.chunk) > 0; ++b)
      for (Index i = 0; i < s.blocks(); ++i)
        if (const Index block = s.block(s.rank, i); block > 0)
          add(b, block * of_block - 1, {0, c.chunk - 1, b * s.seq_length + i * s.block_length(), 1});
  }
  return all;
}

SequenceLayout layout_of_neighbours(const SequenceLayout& text, const RetrievalConfig& c) {
  SequenceLayout s;
  s.batch = text.rows() / c.chunk * c.neighbours, s.seq_length = c.neighbour_length();
  TokenPlaces chunks = text.places();
  for (Index* tokens : {&chunks.seq_length, &chunks.block_length, &chunks.first[0], &chunks.first[1]}) *tokens /= c.chunk;
  s.numbers = {chunks, text.batch, text.full_length() / c.chunk, c.neighbours};
  return s;
}

EncoderInput neighbours_here(const SequenceLayout& text, const RetrievalConfig& c, const EncoderInput& all) {
  EncoderInput here;
  here.length = all.length;
  if (all.tokens.empty()) return here;
  const Index r = c.neighbour_length(), count = text.batch * text.full_length() / c.chunk * c.neighbours;
  ensure(Index(all.tokens.size()) == count * r && (all.lengths.empty() || Index(all.lengths.size()) == count),
         "{} lengths and {} tokens of neighbours for {} sequences of {} in chunks of {}", all.lengths.size(), all.tokens.size(), text.batch,
         text.full_length(), c.chunk);
  for (const QueriedNeighbour& n : queried_neighbours(text, c)) {
    if (n.rows < c.chunk) continue;  // of a chunk of another rank
    if (!all.lengths.empty()) here.lengths.push_back(all.lengths[std::size_t(n.index)]);
    here.tokens.insert(here.tokens.end(), all.tokens.begin() + n.index * r, all.tokens.begin() + (n.index + 1) * r);
  }
  return here;
}

}  // namespace gyr
