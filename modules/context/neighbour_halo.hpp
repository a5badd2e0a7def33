// SPDX-License-Identifier: BSD-3-Clause
// Context parallelism of retrieval (layers R). A rank encodes the k neighbours of r tokens of each chunk of m tokens that its
// blocks of tokens consist of. The first m - 1 rows of a block read the neighbours of the chunk that ends the block before.
// Its owner sends these k r encoded rows once, in the first layer R, and receives their gradient once, in the backward of
// that layer. All later layers R read the rows that have arrived.
// The rows that arrive are in the order of the source: the first neighbours of all these chunks, then the second ones.
#pragma once

#include "modules/pass/pass.hpp"

namespace gyr {

// Blocks of this rank, over all sequences, that follow another block of their sequence: each reads the neighbours of one
// chunk of the block before. 0 if chunks have one token, because no row then reads the chunk before its own.
Index chunks_before_blocks(const SequenceLayout& text, Index chunk);

struct ChunkNeighbours {
  Index chunk, count, length;  // m, k and r
};

template <class T>
class NeighbourHalo {
 public:
  NeighbourHalo(Pass& text, const ChunkNeighbours&);
  // encoded: all rows of this rank's encoded neighbours. before: those of the chunks before its blocks.
  void forward(Tensor2<T> encoded, Tensor2<T> before);
  // dencoded += gradient that the ranks with the next blocks return. dbefore: gradient of `before`.
  void backward(Tensor2<T> dbefore, Tensor2<T> dencoded);

 private:
  // One of a rank's blocks of each sequence, with the ranks that have the next block and the block before; -1: none.
  struct Link {
    Index block;
    int next, previous;
  };
  std::vector<Link> links() const;
  bool follows_own_block() const;
  // Copies between the rows of the n-th neighbours of a chunk of sequence b, and those rows of a message.
  template <class Visit>
  void for_each(const Visit& visit) const;
  Tensor2<T> last_chunk(Tensor2<T> encoded, Index block, Index n, Index b) const;
  Tensor2<T> chunk_before(Tensor2<T> before, Index block, Index n, Index b) const;
  Tensor2<T> message(const char* name, Index width, bool used) const;

  Pass& a_;
  const SequenceLayout& s_;
  ChunkNeighbours c_;
};

}  // namespace gyr
