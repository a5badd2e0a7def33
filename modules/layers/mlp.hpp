// SPDX-License-Identifier: BSD-3-Clause
// MLP: y = (up(h) a(m gate(h))) down' or, without a gate, y = a(m up(h)) down', with a the activation and m the gate
// multiplier. Sharded over the tensor-parallel ranks by inner channels.
#pragma once

#include "modules/model/layer.hpp"

namespace gyr {

template <class T>
class Mlp final : public Branch<T> {
 public:
  // Weights NAME.gate_proj, .up_proj and .down_proj
  Mlp(const ModelConfig&, const std::string& name, Parameters&);
  void forward(Pass&, Frame&, AllRows<T>& h, Add, Tensor2<T> y) override;
  void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) override;
  void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) override;

 private:
  struct Keys {
    static constexpr Key<Tensor2<T>> gate_up{"gate and up", RecomputeCost::gemm, Phase::input_gradients, RowSplit::split},
        inner{"inner", RecomputeCost::pass}, dgate_up{"gradient of gate and up"};
    static constexpr Key<Tensor1<Acc<T>>> magnitudes{"magnitudes of inner"};  // with ternary layers only
  };
  Index projected() const { return (c_.gated ? 2 : 1) * intermediate_size_; }
  const Parameter& first() const { return c_.gated ? *gate_ : *up_; }
  void project(Pass&, Tensor2<const T> all_h, Tensor2<T> all_gate_up, Index first);

  MlpConfig c_;
  std::string name_;
  Index intermediate_size_;  // number of inner channels on this rank
  Parameter *gate_ = nullptr, *up_, *down_;
  Parameter *gate_bias_ = nullptr, *up_bias_ = nullptr, *down_bias_ = nullptr;
};

// Words of the deck for activation functions, in the order of enum Activation.
inline const std::vector<std::string> activation_words{"silu",           "gelu", "gelu_tanh", "relu2",     "tanh",
                                                       "clamped_swiglu", "relu", "sigmoid",   "quick_gelu"};

// Run of inner channels (weight.hpp) that the tensor-parallel ranks shard.
inline Run inner_channels(const MlpConfig& c) { return {c.intermediate_size, c.intermediate_size, false, "mlp.intermediate_size"}; }
OperatorChain mlp_operators(const ModelConfig&, const std::string& name);
LayerFlops mlp_flops(const ModelConfig&, const TextLengths&);

void read_mlp(Section&, ModelConfig&);
inline constexpr LayerSection mlp_section{"mlp", "MLP block", read_mlp};

}  // namespace gyr
