// SPDX-License-Identifier: BSD-3-Clause
// Cross-attention of decoder rows to the encoder output. Queries come from the residual stream, keys and values from
// the encoder output, and every row sees all tokens of its source. Sharded over the tensor-parallel ranks by heads, as
// in attention.hpp. Each context-parallel rank projects keys and values of its own part of the source, and all-gathers
// those of the others.
//
// Retrieval (Borgeaud et al., "Improving language models by retrieving from trillions of tokens", 2022) has two further
// rules. The text is cut into chunks of m tokens, of which the first has o; each has k neighbours of r tokens.
//   neighbours   chunked cross-attention: row t of the text sees all neighbours of chunk floor((t + 1 - o) / m), without
//                padding; rows t < o - 1 see none, and their output is 0
//   chunk        a row of a neighbour sees the m rows of the chunk that the neighbour was retrieved for
// The source has the n-th neighbours of all chunks before the (n + 1)-th, so that each n is one call of the kernels.
// Context parallelism: each block of tokens of a rank consists of chunks. Its first m - 1 rows see the neighbours of the chunk
// before the block (neighbour_halo.hpp), by another call for each n.
#pragma once

#include "kernels/ops/attention.hpp"
#include "modules/context/neighbour_halo.hpp"
#include "modules/model/layer.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {

enum class SourceRows { all, neighbours, chunk };  // rows of the source that a row sees
struct CrossRule {
  SourceRows seen = SourceRows::all;
  Index chunk = 0, neighbours = 0, first_chunk = 0;  // m, k and o; not used if all rows are seen
  bool first = false;                                // the first layer that reads the neighbours, which receives those of the chunks before blocks
};

template <class T>
class CrossAttention : public Branch<T> {
 public:
  // Weights NAME.q_proj, .k_proj, .v_proj and .o_proj
  CrossAttention(const ModelConfig&, const std::string& name, Parameters&, const CrossRule& = {});
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  using A = Acc<T>;
  struct Keys {
    static constexpr Key<Tensor2<T>> source{"encoder output"};
    static constexpr Key<Tensor2<T>> q{"queries", RecomputeCost::gemm, Phase::input_gradients},
        kv{"keys and values of the encoder output", RecomputeCost::gemm, Phase::input_gradients}, attended{"attention output", RecomputeCost::mixing},
        dq{"gradient of queries"}, dkv{"gradient of keys and values of the encoder output"};
    static constexpr Key<Tensor2<A>> lse{"log-sum-exp of the scores", RecomputeCost::mixing, Phase::input_gradients};
    static constexpr Key<Tensor3<T>> cache{"KV cache of the encoder output"};
    static constexpr Key<Tensor2<T>> before{"encoded neighbours before blocks", RecomputeCost::never};
  };
  // Generation with layers R (retrieval_decoding.cpp). True if rows see cached neighbours or none, instead of those in the
  // source of the pass.
  bool sees_cached(const Pass& a) const { return a.state && reads_neighbours() && (!a.source || a.sequences.seq_length == 1); }
  bool gathers_chunks(const Pass& a) const { return reads_neighbours() && !sees_cached(a); }
  Tensor2<T> cached_neighbours(Pass&, Index sequence) const;
  void keep_neighbours(Pass&, Tensor2<T> kv) const;
  void attend_to_cached(Pass&, Tensor2<T> q, const AttentionState<A>&) const;
  // Tokens of the first chunk of the text (o).
  Index first_chunk(const Pass& a) const { return a.sequences.chunks.lengths.empty() ? rule_.first_chunk : a.sequences.chunks.lengths.front(); }
  bool reads_chunk() const { return rule_.seen == SourceRows::chunk; }
  bool reads_neighbours() const { return rule_.seen == SourceRows::neighbours; }
  Index query_rows(const Pass&) const;
  Index chunks_before(const Pass& a) const { return reads_neighbours() ? chunks_before_blocks(a.sequences, rule_.chunk) : 0; }
  Index rows_before(const Pass& a) const { return chunks_before(a) > 0 ? chunks_before(a) * rule_.neighbours * a.source->sequences.seq_length : 0; }
  bool exchanges(const Pass& a) const { return rule_.first && a.sequences.shared() && rule_.chunk > 1; }
  NeighbourHalo<T> halo(Pass& a) const { return {a, {rule_.chunk, rule_.neighbours, a.source->sequences.seq_length}}; }
  Tensor2<T> in_chunks(const Pass&, const char* name, Tensor2<T> x) const;
  template <class S>
  void from_chunks(const Pass&, Tensor2<S> chunks, Tensor2<T> x) const;
  template <class Copy>
  void for_sequences(const Pass&, const Copy& copy) const;
  Tensor2<T> all_rows(Pass& source, Tensor2<T> encoded) const;
  Index q_width() const { return num_heads_ * c_.head_dim; }
  Index k_width() const { return num_kv_heads_ * c_.head_dim; }
  Index out_width() const { return num_heads_ * v_head_dim_; }
  template <class S>
  Matrix<S> keys(const Matrix<S>& kv) const {
    return columns(kv, 0, k_width());
  }
  // This rank's value channels of all its key/value heads.
  template <class S>
  Matrix<S> values(const Matrix<S>& kv) const {
    return columns(columns(kv, k_width(), k_width()), first_value_, num_kv_heads_ * v_head_dim_);
  }
  Matrix<const T> w_kv() const;
  void project_source(Pass& source, Tensor2<T> encoded, Tensor2<T> kv) const;
  void project_neighbours(Pass&, Frame&, Tensor2<T> encoded);
  Tensor2<T> of_all_ranks(Pass& source, Tensor2<T> kv) const;
  void reduce_scatter_to_local(Pass& source, Tensor2<A> all, Tensor2<A> local) const;
  void attend(Pass&, Frame&, Tensor2<T> out, Tensor2<A> lse) const;
  void remember(Pass&, Tensor2<T> encoded) const;
  void attend_with_past(Pass&, Tensor2<T> q, const AttentionState<A>&) const;
  void add_to_source(Pass&, Tensor2<const T> dkv) const;
  Tensor2<T> add_to_neighbours_before(Pass&, Tensor2<const T> dkv) const;
  ScoreRule scores(const Pass&) const;
  template <class Attend>
  void for_queries(const Pass&, Index keys, const Attend& attend_to) const;
  template <class Attend>
  void for_neighbours(const Pass&, const Attend& attend_to) const;
  AttentionShape shape(Index batch, Index queries, Index keys) const {
    return {batch, queries, keys, num_heads_, num_kv_heads_, c_.head_dim, v_head_dim_};
  }

  AttentionConfig c_;
  std::string name_;                // name of this attention module, which seeds its dropout mask
  double dropped_;                  // dropout probability of the attention weights
  Index num_heads_, num_kv_heads_;  // number of query heads and of key/value heads on this rank
  Index v_head_dim_, first_value_;  // value channels per head on this rank, and the first of them
  ScoreRule scores_;
  CrossRule rule_;
  Parameter *q_, *k_, *v_, *o_;
  Parameter *q_bias_ = nullptr, *k_bias_ = nullptr, *v_bias_ = nullptr, *o_bias_ = nullptr;
};

// Operators on the decoder rows, given keys and values; and the operators that project keys and values from the encoder
// output.
OperatorChain cross_attention_operators(const ModelConfig&, const std::string& name);
OperatorChain source_operators(const ModelConfig&, const std::string& name);
LayerFlops cross_attention_flops(const ModelConfig&, const TextLengths&);

}  // namespace gyr
