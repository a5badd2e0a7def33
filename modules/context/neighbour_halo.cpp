// SPDX-License-Identifier: BSD-3-Clause
#include "modules/context/neighbour_halo.hpp"

#include "kernels/ops/elementwise.hpp"
#include "modules/context/exchange.hpp"

namespace gyr {

Index chunks_before_blocks(const SequenceLayout& s, Index chunk) {
  if (!s.shared() || chunk == 1) return 0;
  return s.batch * (s.blocks() - (s.rank == 0 ? 1 : 0));  // only rank 0 has the first block of a sequence
}

template <class T>
NeighbourHalo<T>::NeighbourHalo(Pass& text, const ChunkNeighbours& c) : a_(text), s_(text.sequences), c_(c) {}

// Contiguous order: the next block is on the next rank. Zigzag order: the second blocks follow each other in the opposite
// direction of the ranks.
template <class T>
auto NeighbourHalo<T>::links() const -> std::vector<Link> {
  const int rank = int(s_.rank), above = rank + 1 < s_.ranks ? rank + 1 : -1, below = rank - 1;
  std::vector<Link> links{{0, above, below}};
  if (s_.blocks() == 2) links.push_back({1, below, above});
  return links;
}

// Zigzag order: both blocks of the last rank are neighbours.
template <class T>
bool NeighbourHalo<T>::follows_own_block() const {
  return s_.blocks() == 2 && s_.rank + 1 == s_.ranks;
}

template <class T>
template <class Visit>
void NeighbourHalo<T>::for_each(const Visit& visit) const {
  for (Index n = 0; n < c_.count; ++n)
    for (Index b = 0; b < s_.batch; ++b) visit(n, b, (n * s_.batch + b) * c_.length);
}

// Encoded n-th neighbour of the last chunk of a block of sequence b.
template <class T>
Tensor2<T> NeighbourHalo<T>::last_chunk(Tensor2<T> encoded, Index block, Index n, Index b) const {
  const Index chunks = s_.seq_length / c_.chunk, of_block = s_.block_length() / c_.chunk;
  return rows(encoded, ((n * s_.batch + b) * chunks + (block + 1) * of_block - 1) * c_.length, c_.length);
}

// Encoded n-th neighbour of the chunk before a block of sequence b. The first block of rank 0 has none.
template <class T>
Tensor2<T> NeighbourHalo<T>::chunk_before(Tensor2<T> before, Index block, Index n, Index b) const {
  const Index all = chunks_before_blocks(s_, c_.chunk), of_sequence = all / s_.batch, skipped = s_.blocks() - of_sequence;
  return rows(before, (n * all + b * of_sequence + block - skipped) * c_.length, c_.length);
}

template <class T>
Tensor2<T> NeighbourHalo<T>::message(const char* name, Index width, bool used) const {
  return used ? a_.template scratch<T>(name, s_.batch * c_.count * c_.length, width) : Tensor2<T>();
}

template <class T>
void NeighbourHalo<T>::forward(Tensor2<T> encoded, Tensor2<T> before) {
  const Device::Purpose purpose(a_.dev, "retrieval: encoded neighbours of the last chunk of a block");
  const auto copy = [&](Tensor2<const T> from, Tensor2<T> to) { convert<T, T>(a_.dev, from, to); };
  for (const Link& link : links()) {
    Scope scope(a_.dev.scratch);
    const Index width = encoded.extent(1);
    const auto leaving = message("neighbours to send", width, link.next >= 0), arriving = message("received neighbours", width, link.previous >= 0);
    if (leaving.data()) for_each([&](Index n, Index b, Index row) { copy(last_chunk(encoded, link.block, n, b), rows(leaving, row, c_.length)); });
    start_exchange<T>(a_, flat(leaving), link.next, flat(arriving), link.previous).device_wait(a_.dev);
    if (arriving.data()) for_each([&](Index n, Index b, Index row) { copy(rows(arriving, row, c_.length), chunk_before(before, link.block, n, b)); });
  }
  if (follows_own_block()) for_each([&](Index n, Index b, Index) { copy(last_chunk(encoded, 0, n, b), chunk_before(before, 1, n, b)); });
}

template <class T>
void NeighbourHalo<T>::backward(Tensor2<T> dbefore, Tensor2<T> dencoded) {
  const Device::Purpose purpose(a_.dev, "retrieval, backward: gradient of the neighbours of the chunk before a block");
  const auto add_to = [&](Tensor2<const T> from, Tensor2<T> to) { add<T>(a_.dev, Matrix<const T>(from), Matrix<T>(to)); };
  for (const Link& link : links()) {
    Scope scope(a_.dev.scratch);
    const Index width = dencoded.extent(1);
    const auto leaving = message("gradient of neighbours to send", width, link.previous >= 0),
               arriving = message("received gradient of neighbours", width, link.next >= 0);
    if (leaving.data())
      for_each([&](Index n, Index b, Index row) { convert<T, T>(a_.dev, chunk_before(dbefore, link.block, n, b), rows(leaving, row, c_.length)); });
    start_exchange<T>(a_, flat(leaving), link.previous, flat(arriving), link.next).device_wait(a_.dev);
    if (arriving.data())
      for_each([&](Index n, Index b, Index row) { add_to(rows(arriving, row, c_.length), last_chunk(dencoded, link.block, n, b)); });
  }
  if (follows_own_block()) for_each([&](Index n, Index b, Index) { add_to(chunk_before(dbefore, 1, n, b), last_chunk(dencoded, 0, n, b)); });
}

template class NeighbourHalo<double>;
template class NeighbourHalo<float>;
template class NeighbourHalo<bf16>;

}  // namespace gyr
