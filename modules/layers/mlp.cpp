// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/mlp.hpp"

#include "kernels/ops/activation.hpp"
#include "modules/layers/projection.hpp"
#include "modules/weights/contribution.hpp"

namespace gyr {

template <class T>
Mlp<T>::Mlp(const ModelConfig& m, const std::string& name, Parameters& parameters) : c_(m.mlp), name_(name) {
  using P = Parameters;
  const Run inner = inner_channels(c_);
  const auto matrix = [&](const char* part, P::Fit fit) {
    return &parameters.declare(
        adapting({name + part + ".weight", {c_.intermediate_size, m.hidden_size}, by_rows({inner}), normal(m.init_std), Storage::factor}), fit);
  };
  const auto bias = [&](const char* part, P::Fit fit) {
    return &parameters.declare({name + part + ".bias", {c_.intermediate_size}, by_rows({inner}), zeros(), Storage::wide, false}, fit);
  };
  const P::Fit fit = c_.gated ? P::Fit::adjacent : P::Fit::aligned;
  if (c_.gated) gate_ = matrix(".gate_proj", P::Fit::aligned);
  up_ = matrix(".up_proj", fit);
  down_ = &parameters.declare(
      adapting({name + ".down_proj.weight", {m.hidden_size, c_.intermediate_size}, by_columns({inner}), normal(m.init_std), Storage::factor}));
  if (c_.bias) {
    if (c_.gated) gate_bias_ = bias(".gate_proj", P::Fit::aligned);
    up_bias_ = bias(".up_proj", fit);
    down_bias_ = &parameters.declare({name + ".down_proj.bias", {m.hidden_size}, replicated(), zeros(), Storage::wide, false});
  }
  intermediate_size_ = up_->rows();
}

template <class T>
void Mlp<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const Index rows = a.stream.rows;
  const auto gate_up = frame.put(Keys::gate_up, rows, projected());
  const auto inner = frame.put(Keys::inner, rows, intermediate_size_);
  if (frame.wants(Keys::gate_up)) project(a, h.gather(), gate_up, frame.first_row_wanted(Keys::gate_up));
  if (frame.wants(Keys::inner)) {
    if (c_.gated) glu<T>(a.dev, c_.activation, gate_up, c_.gate_multiplier, inner);
    else activate<T>(a.dev, c_.activation, gate_up, c_.gate_multiplier, inner);
    contribute_once<T>(a.dev, *down_, inner);
  }
  if (c_.gated) a.show(name_, ".gate", columns(gate_up, 0, intermediate_size_), *gate_);
  a.show(name_, ".up", columns(gate_up, projected() - intermediate_size_, intermediate_size_), *up_);
  a.show(name_, ".inner", inner, *down_);
  const auto largest = save_magnitudes<T>(a, frame, Keys::magnitudes, *down_, inner);
  if (!y.data()) return;
  adapted_linear<T>(a, {down_}, inner, y, c_.down_multiplier, beta(add), largest);
  if (c_.bias && a.tensor.rank() == 0) add_bias<T>(a.dev, down_bias_->template vector<const Acc<T>>(), c_.down_multiplier, y);
}

template <class T>
void Mlp<T>::project(Pass& a, Tensor2<const T> all_h, Tensor2<T> all_gate_up, Index first) {
  const auto gate_up = rows_from(all_gate_up, first);
  adapted_linear<T>(a, {gate_, up_}, rows_from(all_h, first), gate_up, 1, 0, {}, all_h);
  const Parameter* const bias = c_.gated ? gate_bias_ : up_bias_;
  if (c_.bias) bias_scale<T>(a.dev, Tensor1<const Acc<T>>(bias->template vector<Acc<T>>().data(), projected()), {}, gate_up);
}

template <class T>
void Mlp<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const Index rows = dy.extent(0);
  Scope scope(a.dev.scratch);
  auto dinner = a.scratch<T>("gradient of inner", rows, intermediate_size_);
  const auto dgate_up = frame.put(Keys::dgate_up, rows, projected());
  adapted_linear_backward_input<T>(a, {down_}, dy, dinner, c_.down_multiplier);
  contribute_once<T>(a.dev, *down_, dinner);
  if (c_.gated) glu_backward<T>(a.dev, c_.activation, dinner, frame.get(Keys::gate_up), c_.gate_multiplier, dgate_up);
  else activate_backward<T>(a.dev, c_.activation, dinner, frame.get(Keys::gate_up), c_.gate_multiplier, dgate_up);
  if (c_.bias) {
    biases_backward<T>(a.dev, {gate_bias_, up_bias_}, dgate_up);
    biases_backward<T>(a.dev, {down_bias_}, dy, c_.down_multiplier);
  }
  adapted_linear_backward_input<T>(a, {gate_, up_}, dgate_up, dh, 1, beta(add));
}

template <class T>
void Mlp<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  adapted_weights_backward<T>(a, {down_}, dy, frame.get(Keys::inner), c_.down_multiplier, frame.get(Keys::magnitudes));
  adapted_weights_backward<T>(a, {gate_, up_}, frame.get(Keys::dgate_up), h);
}

void read_mlp(Section& s, ModelConfig& m) {
  MlpConfig& c = m.mlp;
  c.intermediate_size =
      s.get("intermediate_size", c.intermediate_size, "inner channels (Megatron: --ffn-hidden-size), sharded over the tensor-parallel ranks")
          .positive()
          .at_most(widest);
  c.activation =
      get_word(s, "activation", c.activation, activation_words,
               "activation of the gate (hidden_act); gelu_tanh: as in GPT-2, relu2: squared ReLU, clamped_swiglu: as in gpt-oss, only with a gate");
  c.gated = s.get("gated", c.gated, "gated MLP, down(a(gate) up); false: down(a(up))");
  c.bias = s.get("bias", c.bias, "biases of gate_proj, up_proj and down_proj (mlp_bias)");
  c.gate_multiplier = s.get("gate_multiplier", c.gate_multiplier, "factor on the activation's input (mlp_multipliers, first)");
  c.down_multiplier = s.get("down_multiplier", c.down_multiplier, "factor on the output (mlp_multipliers, second)");
}

OperatorChain mlp_operators(const ModelConfig& m, const std::string& name) {
  const MlpConfig& c = m.mlp;
  const Run inner = inner_channels(c);
  const Channels stream = undivided(m.hidden_size), read = by_units(c.gated ? std::vector{inner, inner} : std::vector{inner});
  const std::vector<std::string> up = c.gated ? std::vector{name + ".gate_proj", name + ".up_proj"} : std::vector{name + ".up_proj"};
  return {gemm_operator(c.gated ? "gate and up" : "up", stream, read, up, c.bias), over_units("activation", read, by_units({inner})),
          gemm_operator("down", by_units({inner}), stream, {name + ".down_proj"}, c.bias)};
}

LayerFlops mlp_flops(const ModelConfig& m, const TextLengths&) {
  LayerFlops f;
  f.gemms = (m.mlp.gated ? 6.0 : 4.0) * double(m.hidden_size) * double(m.mlp.intermediate_size);
  return f;
}

template class Mlp<double>;
template class Mlp<float>;
template class Mlp<bf16>;

}  // namespace gyr
