// SPDX-License-Identifier: BSD-3-Clause
// Context parallelism of convolution and SSM scan: exchanges the inputs before each block of tokens, and the state that
// enters each block. Each rank first computes what its own blocks contribute to a state. An all-gather distributes
// these contributions, and each rank combines them for its blocks. No rank waits for outputs of another one, and the
// traffic does not depend on the sequence length.
#pragma once

#include "kernels/ops/ssd_chunk.hpp"
#include "modules/pass/pass.hpp"

namespace gyr {

template <class T>
class ContextScan {
 public:
  explicit ContextScan(Pass& a);

  // Index of a block in the data gathered rank by rank, given its sequence and its number in that sequence.
  Index gathered(Index sequence, Index number) const;
  Index number(Index here) const { return s_.block(s_.rank, here % s_.blocks()); }  // number in its sequence of this rank's block `here`
  Index last() const { return last_; }                                              // number of the last block of a sequence
  Index blocks() const { return here_; }                                            // number of blocks of tokens on this rank, over all sequences

  // before(i) = the last K-1 inputs before this rank's block i; zeros before the first block of a sequence.
  void inputs_before(Matrix<const T> x, Tensor3<T> before /*(blocks, K-1, C)*/);
  // Backward: adds to the last rows of each block in dx the gradient from the block that follows and has read them.
  void inputs_before_backward(Tensor3<const T> dbefore, Matrix<T> dx);

  // State that enters each block, from each block's contribution to the state (local) and its decay of the incoming
  // state (total).
  void entering(const SsdShape&, Tensor2<const Acc<T>> total /*(blocks, H)*/, Tensor2<const Acc<T>> local /*(blocks, H P N)*/,
                Tensor2<Acc<T>> state /*(blocks, H P N)*/);
  // Gradient of the state that leaves each block, from each block's contribution to the gradient of its incoming state
  // (local) and its decay (total).
  void leaving_gradient(const SsdShape&, Tensor2<const Acc<T>> total, Tensor2<const Acc<T>> local, Tensor2<Acc<T>> dstate);

 private:
  using A = Acc<T>;
  void combine_block_states(const SsdShape&, Tensor2<const A> total, Tensor2<const A> local, Tensor2<A> state, bool from_the_end);

  Pass& a_;
  const SequenceLayout& s_;
  Index here_, last_;  // number of blocks on this rank; index of the last block of a sequence
};

}  // namespace gyr
