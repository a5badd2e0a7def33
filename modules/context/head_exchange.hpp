// SPDX-License-Identifier: BSD-3-Clause
// Context parallel attention by all-to-all between heads and tokens (Jacobs et al., "DeepSpeed Ulysses", 2023). One
// all-to-all gives every rank all tokens of its part of the heads, another one returns the attention output. If there
// are more ranks than key heads, several ranks have the same key head, and its gradients are summed when they return.
#pragma once

#include "modules/context/context_attention.hpp"

namespace gyr {

// Exit::config unless a rank's heads can be distributed over this number of context-parallel ranks.
void check_head_exchange(Index num_heads, Index num_kv_heads, Index context_ranks);

template <class T>
class HeadExchange final : public ContextAttention<T> {
 public:
  // `heads`: this rank's heads before the exchange.
  HeadExchange(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window);
  // lse: all tokens of the sequences, this rank's part of the heads.
  void forward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<T> out, Tensor2<Acc<T>> lse, const Sinks<Acc<T>>&) override;
  void backward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse,
                Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq, Matrix<Acc<T>> dk, Matrix<Acc<T>> dv, const Sinks<Acc<T>>&) override;

 private:
  using A = Acc<T>;
  Index all_rows() const { return s_.ranks * s_.rows(); }
  Index q_width() const { return part_.num_heads * part_.head_dim; }
  Index k_width() const { return part_.num_kv_heads * part_.head_dim; }
  Index v_width() const { return part_.num_kv_heads * part_.v_head_dim; }
  Index out_width() const { return part_.num_heads * part_.v_head_dim; }
  Sinks<A> part(const Sinks<A>& sinks) const { return sinks.of_heads(s_.rank * part_.num_heads, part_.num_heads); }
  Index first_key_head(Index rank) const { return rank * heads_.num_kv_heads / s_.ranks; }

  // A matrix whose columns are distributed, `width` to each rank: consecutive parts, or (of_keys) the columns of the
  // rank's key heads.
  template <class S>
  struct Distribution {
    Matrix<const S> full;
    Index width;
    bool of_keys = false;
  };
  // to_heads: columns that this rank receives of these matrices, side by side, for all tokens in order. to_tokens: the
  // inverse, with the result in rank order.
  template <class S>
  Tensor2<S> to_heads(const char* name, std::initializer_list<Distribution<S>>);
  template <class S>
  Tensor2<S> to_tokens(const char* name, Tensor2<S> part);
  // Calls copy(rows in rank order, the same rows in token order) for each block of contiguous tokens.
  template <class S, class Copy>
  void for_blocks(Tensor2<S> by_rank, Tensor2<S> in_order, Copy&& copy) const;
  Mask mask() const;

  Pass& a_;
  const SequenceLayout& s_;
  AttentionShape heads_, part_;  // attention shape of this rank before the head exchange; after it
  ScoreRule scores_;
  Index window_;
};

}  // namespace gyr
