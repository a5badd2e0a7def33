// SPDX-License-Identifier: BSD-3-Clause
// What the convolution and the scan of ranks that share sequences tell each other: the inputs in front of each block of tokens, and the state
// that enters it. Each rank first computes what its own blocks add to a state; then all know all of these, and each finds its own: no rank waits
// for another one's outputs, and bytes do not depend on the length of the sequences.
#pragma once

#include "kernels/ops/ssd_chunk.hpp"
#include "modules/pass/pass.hpp"

namespace gyr {

template <class T>
class ContextScan {
 public:
  explicit ContextScan(Pass& a);

  Index blocks() const { return here_; }  // of this rank, in all sequences

  // before(i) = the last inputs of the block in front of this rank's block i, zeros in front of a sequence's first.
  void inputs_before(Matrix<const T> x, Tensor3<T> before /*(blocks, K-1, C)*/);
  // And back: x's last rows of each block += the gradient of what the block behind it has read.
  void inputs_before_backward(Tensor3<const T> dbefore, Matrix<T> dx);

  // The state that enters each block, of what each block adds (own) and keeps (total) of a state.
  void entering(const SsdShape&, Tensor2<const Acc<T>> total /*(blocks, H)*/, Tensor2<const Acc<T>> own /*(blocks, H P N)*/,
                Tensor2<Acc<T>> state /*(blocks, H P N)*/);
  // The gradient of the state that leaves each block, of what each adds to that of the state that enters it.
  void leaving_gradient(const SsdShape&, Tensor2<const Acc<T>> total, Tensor2<const Acc<T>> own, Tensor2<Acc<T>> dstate);

 private:
  using A = Acc<T>;
  // A block of a sequence, by its number there, wherever it is: index among those of all ranks, rank by rank.
  Index gathered(Index sequence, Index number) const;
  Index number(Index here) const { return s_.block(s_.rank, here % s_.blocks()); }
  void combine_block_states(const SsdShape&, Tensor2<const A> total, Tensor2<const A> own, Tensor2<A> state, bool from_the_end);

  Pass& a_;
  const SequenceLayout& s_;
  Index here_, last_;  // blocks of this rank; number of a sequence's last
};

}  // namespace gyr
