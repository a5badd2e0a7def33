// SPDX-License-Identifier: BSD-3-Clause
// Multi-head latent attention, MLA (DeepSeek-AI, "DeepSeek-V2", 2024). Queries, keys and values of all heads are projected from a few latent channels
// of each token, and positions enter through rotary channels of the keys that all heads share,
//   (c_q ; c ; r) = A h,   q = B_q norm(c_q),   (k' ; v) = B norm(c) for each head,   k = (k' ; rotated r)
//   h normed row, c_q query latent, c key/value latent, r rotary channels of the keys
// Sharded over the tensor-parallel ranks by heads. The latents are computed on every rank, and each rank has a partial gradient of them.
// Generation: the KV cache holds norm(c) and rotated r of each token, kv_rank + rope_dim values for all heads together. With B = (B_k ; B_v) of a
// head, a score is q_nope B_k norm(c) + q_rope r, so queries are multiplied by B_k (absorbed) and attend to the cached rows as to one key head. The
// weighted sum of cached norm(c) is multiplied by B_v.
#pragma once

#include "kernels/ops/attention.hpp"
#include "kernels/ops/latent_heads.hpp"
#include "modules/model/layer.hpp"
#include "modules/weights/operator_chain.hpp"

namespace gyr {

template <class T>
class LatentAttention final : public Branch<T> {
 public:
  // Weights NAME.q_a_proj, .q_a_layernorm and .q_b_proj, or NAME.q_proj without a query latent;
  // NAME.kv_a_proj_with_mqa, .kv_a_layernorm, .kv_b_proj and .o_proj
  LatentAttention(const ModelConfig&, const std::string& name, Parameters&);
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  using A = Acc<T>;
  struct Keys {
    static constexpr Key<Tensor2<T>> compressed{"latents before their norm", RecomputeCost::gemm, Phase::input_gradients},
        latents{"latents after their norm", RecomputeCost::gemm}, qkv{"queries, keys and values", RecomputeCost::gemm, Phase::input_gradients},
        attended{"attention output", RecomputeCost::mixing};
    static constexpr Key<Tensor2<A>> rstd{"inverse root mean squares of latents", RecomputeCost::gemm, Phase::input_gradients},
        lse{"log-sum-exp of the scores", RecomputeCost::mixing, Phase::input_gradients};
    static constexpr Key<Tensor2<T>> dcompressed{"gradient of latents before their norm"}, dq{"gradient of queries"},
        dkv{"gradient of keys and values"};
    static constexpr Key<Tensor3<T>> cache{"KV cache"};
  };
  // Channels of a row: the latents; the latents and the rotary channels of the keys.
  Index latent_width() const { return c_.q_rank + c_.kv_rank; }
  Index compressed_width() const { return latent_width() + c_.rope_dim; }
  Index k_width() const { return heads_.heads * heads_.width(); }
  Index v_width() const { return heads_.heads * heads_.values; }
  // Queries (0), keys (1) or values (2) of all heads, side by side.
  template <class S>
  Matrix<S> part(const Tensor2<S>& qkv, int i) const {
    return columns(qkv, i * k_width(), i < 2 ? k_width() : v_width());
  }
  template <class S>
  Matrix<S> of_queries(const Tensor2<S>& x) const {
    return columns(x, 0, c_.q_rank);
  }
  template <class S>
  Matrix<S> of_keys(const Tensor2<S>& x) const {
    return columns(x, c_.q_rank, c_.kv_rank);
  }
  template <class S>
  Matrix<S> shared(const Tensor2<S>& compressed) const {
    return columns(compressed, latent_width(), c_.rope_dim);
  }
  Matrix<const T> w_compress() const;
  RowRotation<A> rotation(const Pass&) const;
  AttentionShape shape(Index batch, Index queries, Index keys) const;
  ScoreRule scores(const Pass&) const;
  void declare_compression(const ModelConfig&, const std::string& name, Parameters&);
  void declare_heads(const ModelConfig&, const std::string& name, Parameters&);
  void compress(Pass&, Frame&, Tensor2<const T> h);
  void expand(Pass&, Frame&, Tensor2<const T> h);
  void attend(Pass&, Frame&, Tensor2<T> qkv, Tensor2<T> out, Tensor2<A> lse);
  // True if keys and values of earlier tokens come from the cache, so that queries are absorbed.
  bool absorbs(const Pass&) const;
  Index cached_width() const { return c_.kv_rank + c_.rope_dim; }
  // Rows [first, first + count) of kv_b_proj within those of head h: N for keys, then V for values.
  Matrix<const T> w_expand(Index h, Index first, Index count) const;
  void write_cache(Pass&, Tensor2<const T> latents, Tensor2<const T> qkv);
  void write_rows(Pass&, Tensor2<const T> latents, Tensor2<const T> qkv, Index first, Tensor2<T> to) const;
  void attend_to_cache(Pass&, Frame&, Tensor2<T> qkv, Tensor2<T> out);
  Tensor2<T> absorb(Pass&, Tensor2<const T> qkv) const;
  Tensor3<T> cache(Pass&) const;
  Tensor2<A> attend_backward(Pass&, Frame&, Tensor2<const T> dout);
  void compress_backward(Pass&, Frame&, Tensor2<T> dlatents);

  LatentConfig c_;
  std::string name_;
  LatentHeads heads_;  // number of heads on this rank, and channels per head
  double dropped_;     // dropout probability of the attention weights
  double scale_;
  Parameter *q_a_ = nullptr, *kv_a_, *q_norm_ = nullptr, *kv_norm_;
  Parameter *q_b_, *kv_b_, *o_;  // q_b_ projects the query latent to queries or, without a latent, the residual stream
  Parameter *q_a_bias_ = nullptr, *kv_a_bias_ = nullptr, *o_bias_ = nullptr;
};

OperatorChain latent_attention_operators(const ModelConfig&, const std::string& name);
LayerFlops latent_attention_flops(const ModelConfig&, const TextLengths&);

void read_latent(Section&, ModelConfig&);
inline constexpr LayerSection latent_section{"latent", "multi-head latent attention (MLA)", read_latent};

}  // namespace gyr
