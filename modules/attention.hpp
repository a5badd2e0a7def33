// SPDX-License-Identifier: BSD-3-Clause
// Causal grouped-query attention with rotary positions, dealt over the tensor axis by heads.
#pragma once

#include "kernels/attention.hpp"
#include "modules/layer.hpp"

namespace gyr {

template <class T>
class Attention final : public Branch<T> {
 public:
  // Weights NAME.q_proj, .k_proj, .v_proj and .o_proj
  Attention(const ModelConfig&, const std::string& name, Parameters<T>&);
  void forward(Pass<T>&, Tensor2<const T> h, Add, Tensor2<T> y) override;
  void backward(Pass<T>&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;

 private:
  Index q_width() const { return heads_ * c_.width; }
  Index k_width() const { return key_heads_ * c_.width; }
  Matrix<const T> w_qkv() const;
  void attend(Pass<T>&, Tensor2<T> qkv, AttentionState<Acc<T>>);
  void attend_with_past(Pass<T>&, Tensor2<T> qkv, AttentionState<Acc<T>>);
  AttentionShape shape(Index batch, Index queries, Index keys) const { return {batch, queries, keys, heads_, key_heads_, c_.width}; }

  AttentionConfig c_;
  std::string name_;
  Index heads_, key_heads_;  // on this rank
  double scale_;
  Parameter *q_, *k_, *v_, *o_;
  Parameter *q_bias_ = nullptr, *k_bias_ = nullptr, *v_bias_ = nullptr, *o_bias_ = nullptr;
};

LayerFlops attention_flops(const ModelConfig&, Index length);

}  // namespace gyr
