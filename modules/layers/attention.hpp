// SPDX-License-Identifier: BSD-3-Clause
// Grouped-query attention, causal or bidirectional, with or without RoPE, sharded over the tensor-parallel ranks by
// heads. If there are more ranks than query heads, all ranks of a head compute its scores, and each computes the output
// of its own value channels. With a sliding window, a query attends only to the nearest tokens: those before it, or
// those on both sides if not causal.
#pragma once

#include "kernels/ops/attention.hpp"
#include "kernels/ops/head_norm.hpp"
#include "modules/context/context_attention.hpp"
#include "modules/layers/relative_bias.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {

template <class T>
class Attention final : public Branch<T> {
 public:
  // Weights NAME.q_proj, .k_proj, .v_proj and .o_proj; with qk_norm also .q_norm and .k_norm; with sinks also .sinks;
  // with output_gate also .gate_proj
  Attention(const ModelConfig&, const std::string& name, Parameters&);
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  struct Keys {
    static constexpr Key<Tensor2<T>> qkv{"queries, keys and values", RecomputeCost::gemm, Phase::input_gradients, RowSplit::split},
        attended{"attention output", RecomputeCost::mixing}, dqkv{"gradient of qkv"};
    static constexpr Key<Tensor2<T>> gate{"output gate", RecomputeCost::gemm, Phase::input_gradients},
        gated{"gated attention output", RecomputeCost::pass}, dgate{"gradient of the output gate"};
    static constexpr Key<Tensor2<T>> raw{"queries and keys before their norm", RecomputeCost::gemm, Phase::input_gradients, RowSplit::split};
    static constexpr Key<Tensor2<Acc<T>>> lse{"log-sum-exp of the scores", RecomputeCost::mixing, Phase::input_gradients},
        rstd{"inverse root mean squares of heads", RecomputeCost::gemm, Phase::input_gradients, RowSplit::split};
    static constexpr Key<Tensor2<Acc<T>>> squares{"sums of squares of queries and of keys", RecomputeCost::sum, Phase::input_gradients};
    static constexpr Key<Tensor1<Acc<T>>> magnitudes{"magnitudes of the attention output"};  // with ternary layers only
    static constexpr Key<Tensor3<T>> cache{"KV cache"};
  };
  bool has_qkv_bias() const { return c_.bias || c_.qkv_bias; }
  Index q_width() const { return num_heads_ * c_.head_dim; }
  Index k_width() const { return num_kv_heads_ * c_.head_dim; }
  Index out_width() const { return num_heads_ * v_head_dim_; }
  void project(Pass&, Frame&, Tensor2<const T> h, Tensor2<T> qkv, Index first);
  Tensor2<T> gate_output(Pass&, Frame&, AllRows<T>& h, Tensor2<T> out);
  Tensor2<T> gate_and_output(Pass&, Tensor2<const T> gate, Tensor2<const T> out) const;
  void gate_backward(Pass&, Frame&, Tensor2<T> dout);
  void norm_heads(Pass&, Tensor2<T> qkv, Tensor2<T> raw, Tensor2<Acc<T>> rstd);
  void norm_heads_backward(Pass&, Frame&, Tensor2<T> dqkv);
  void norm_rows(Pass&, Frame&, Tensor2<T> qkv, Index first);
  void norm_rows_backward(Pass&, Frame&, Tensor2<T> dqkv);
  bool norms_heads() const { return c_.qk_norm && !c_.qk_norm_all_heads; }
  // Queries (0) or keys (1), which are next to each other in x.
  template <class M>
  auto qk(const M& x, int i) const {
    return i == 0 ? columns(x, 0, q_width()) : columns(x, q_width(), k_width());
  }
  template <class S>
  void rotate(Pass&, Rotate, Matrix<const S> x, Matrix<T> y, Index first = 0) const;
  void attend_to_all(Pass&, Tensor2<T> qkv, Tensor2<T> out, Tensor2<Acc<T>> lse);
  void attend_local(Pass&, const ScoreRule&, Tensor2<T> qkv, Tensor2<T> out, Tensor2<Acc<T>> lse);
  // Score rule of this pass. A relative position bias is in scratch memory until the caller's scope ends.
  ScoreRule scores(Pass&, bool backward) const;
  void attend(Pass&, const ScoreRule&, Tensor2<T> qkv, AttentionState<Acc<T>>);
  void attend_with_past(Pass&, const ScoreRule&, Tensor2<T> qkv, AttentionState<Acc<T>>);
  void update_window_cache(Pass&, Matrix<const T> kv, Index past, Tensor2<T> cache);
  Mask mask(const Pass&) const;
  Sinks<Acc<T>> sinks() const;
  // This rank's value channels of all its key/value heads.
  template <class S>
  Matrix<S> channels(const Matrix<S>& v) const {
    return columns(v, first_value_, num_kv_heads_ * v_head_dim_);
  }
  AttentionShape shape(Index batch, Index queries, Index keys) const {
    return {batch, queries, keys, num_heads_, num_kv_heads_, c_.head_dim, v_head_dim_};
  }

  AttentionConfig c_;
  double eps_, norm_offset_;  // epsilon and weight offset of the q and k norms
  std::string name_;
  Index num_heads_, num_kv_heads_;  // number of query heads and of key/value heads on this rank
  Index v_head_dim_, first_value_;  // value channels per head on this rank, and the first of them
  ScoreRule scores_;
  double dropped_;  // dropout probability of the attention weights
  Parameter *q_, *k_, *v_, *o_;
  Parameter *gate_ = nullptr, *sinks_ = nullptr;
  Parameter *q_norm_ = nullptr, *k_norm_ = nullptr;
  Parameter *q_bias_ = nullptr, *k_bias_ = nullptr, *v_bias_ = nullptr, *o_bias_ = nullptr;
};

// A copy of the configuration whose attention has the sliding window and, if one is set, the window's RoPE base.
ModelConfig with_window(ModelConfig);

// Runs of weight rows (weight.hpp) that the tensor-parallel ranks shard: q by query heads, k and v by key/value heads,
// and the attention output by query heads or, if there are more ranks than heads, by channels within a head.
struct HeadRuns {
  Run queries, keys, attended;
};
HeadRuns head_runs(const AttentionConfig&);
OperatorChain attention_operators(const ModelConfig&, const std::string& name);
LayerFlops attention_flops(const ModelConfig&, const TextLengths&);
HeadCounts attention_heads(const ModelConfig&);

void read_rope_scaling(Section&, RopeScaling&);
void read_attention(Section&, ModelConfig&);
inline constexpr LayerSection attention_section{"attention", "grouped-query attention", read_attention};
void read_window(Section&, ModelConfig&);
inline constexpr LayerSection window_section{"window", "sliding-window attention", read_window};

}  // namespace gyr
