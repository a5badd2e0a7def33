// SPDX-License-Identifier: BSD-3-Clause
// Attention of ranks that share sequences (Liu et al., "Ring Attention with Blockwise Transformers", 2023): keys and values go round from rank to
// rank, every rank meets each with its own queries and carries (o, m, l), and no rank ever holds more than two ranks' keys. On the way back the
// gradients of keys and values go round with them and come home. What comes next is on its way while the present is computed with. Through a window
// keys go no further than some rank looks back, and their gradients from there straight home.
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
  // Up to the last at which some rank sees keys.
  Index steps() const;
  Mask mask(Index block, Index of_keys, Index sequence = 0) const;
  Event pass_on(Tensor2<const T> mine, Tensor2<T> next);
  // visit(block of this rank, first row of it, first row of the keys, mask) for each two blocks of which one may see the other.
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
