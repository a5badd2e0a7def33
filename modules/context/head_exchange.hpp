// SPDX-License-Identifier: BSD-3-Clause
// Attention of ranks that share sequences, by an exchange of heads against tokens (Jacobs et al., "DeepSpeed Ulysses", 2023): one all-to-all gives
// every rank all tokens of its part of the heads, and another one brings back what they attended to. Where ranks outnumber the key heads,
// several have the same one, and its gradients are summed where they come home.
#pragma once

#include "modules/context/context_attention.hpp"

namespace gyr {

// Exit::config unless the heads of a rank can be dealt to so many context ranks.
void check_head_exchange(Index num_heads, Index num_kv_heads, Index context_ranks);

template <class T>
class HeadExchange final : public ContextAttention<T> {
 public:
  // `heads`: before the exchange.
  HeadExchange(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window);
  // lse: of all rows and a part of the heads.
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

  // Columns of which every rank gets so many: one part behind the other, or those of its key heads.
  template <class S>
  struct Distribution {
    Matrix<const S> whole;
    Index width;
    bool of_keys = false;
  };
  // What ranks get of them side by side, of all tokens in their order; and back, rank by rank.
  template <class S>
  Tensor2<S> to_heads(const char* name, std::initializer_list<Distribution<S>>);
  template <class S>
  Tensor2<S> to_tokens(const char* name, Tensor2<S> part);
  // Between rows rank by rank and rows in the order of the tokens.
  template <class S, class Copy>
  void for_blocks(Tensor2<S> by_rank, Tensor2<S> in_order, Copy&& copy) const;
  Mask mask() const;

  Pass& a_;
  const SequenceLayout& s_;
  AttentionShape heads_, part_;  // before the exchange, and behind it
  ScoreRule scores_;
  Index window_;
};

}  // namespace gyr
