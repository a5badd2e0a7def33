// SPDX-License-Identifier: BSD-3-Clause
// Ring attention over context-parallel ranks (Liu et al., "Ring Attention with Blockwise Transformers", 2023). K/V
// shards move around the ring from rank to rank. Every rank attends to each shard with its own queries and carries the
// online-softmax state (o, m, l). No rank holds more than two K/V shards. In the backward, the gradients of K/V move
// around the ring with them and return to their owner. The transfer for the next step overlaps the computation of this
// one. With a sliding window, K/V move only as far as the window of some rank reaches, and their gradients return from
// there directly.
#pragma once

#include "modules/context/context_attention.hpp"

namespace gyr {

template <class T>
class RingAttention final : public ContextAttention<T> {
 public:
  RingAttention(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window);
  void forward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<T> out, Tensor2<Acc<T>> lse, const Sinks<Acc<T>>&) override;
  void backward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse,
                Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq, Matrix<Acc<T>> dk, Matrix<Acc<T>> dv, const Sinks<Acc<T>>&) override;

 private:
  using A = Acc<T>;
  Index k_width() const { return heads_.num_kv_heads * heads_.head_dim; }
  Index v_width() const { return heads_.num_kv_heads * heads_.v_head_dim; }
  template <class S>
  Matrix<S> keys(const Tensor2<S>& kv) const {
    return columns(kv, 0, k_width());
  }
  template <class S>
  Matrix<S> values(const Tensor2<S>& kv) const {
    return columns(kv, k_width(), v_width());
  }
  Tensor2<T> packed(Matrix<const T> k, Matrix<const T> v);
  Index owner_on(Index rank, Index step) const { return (rank - step + s_.ranks) % s_.ranks; }
  int owner(Index step) const { return int(owner_on(s_.rank, step)); }
  // Number of ring steps, up to the last one in which some rank sees keys.
  Index steps() const;
  Mask mask(Index block, Index of_keys, Index sequence = 0) const;
  Event pass_on(Tensor2<const T> mine, Tensor2<T> next);
  // Calls visit(query block, its first row, first row of the key block, mask) for every pair of a query block of this
  // rank and a key block of rank `owner` in which a query may see a key.
  template <class Visit>
  void for_blocks(int owner, Visit&& visit) const;
  AttentionShape shape(Index batch, Index tokens) const;

  Pass& a_;
  const SequenceLayout& s_;
  AttentionShape heads_;
  ScoreRule scores_;
  Index window_;
};

}  // namespace gyr
