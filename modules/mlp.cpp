// SPDX-License-Identifier: BSD-3-Clause
#include "modules/mlp.hpp"

#include "kernels/swiglu.hpp"
#include "modules/contribution.hpp"
#include "modules/trainable.hpp"

namespace gyr {

template <class T>
Mlp<T>::Mlp(const ModelConfig& m, const std::string& name, Parameters& parameters) : c_(m.mlp), name_(name) {
  using P = Parameters;
  const Run inner{c_.intermediate_size, c_.intermediate_size, false, "mlp.intermediate_size"};
  const auto matrix = [&](const char* part, P::Fit fit) {
    return &parameters.declare(
        {name + part + ".weight", {c_.intermediate_size, m.hidden_size}, by_rows({inner}), normal(m.init_std), Storage::factor}, fit);
  };
  const auto bias = [&](const char* part, P::Fit fit) {
    return &parameters.declare({name + part + ".bias", {c_.intermediate_size}, by_rows({inner}), zeros(), Storage::wide, false}, fit);
  };
  gate_ = matrix(".gate_proj", P::Fit::aligned);
  up_ = matrix(".up_proj", P::Fit::adjacent);
  down_ = &parameters.declare(
      {name + ".down_proj.weight", {m.hidden_size, c_.intermediate_size}, by_columns({inner}), normal(m.init_std), Storage::factor});
  if (c_.bias) {
    gate_bias_ = bias(".gate_proj", P::Fit::aligned);
    up_bias_ = bias(".up_proj", P::Fit::adjacent);
    down_bias_ = &parameters.declare({name + ".down_proj.bias", {m.hidden_size}, replicated(), zeros(), Storage::wide, false});
  }
  intermediate_size_ = gate_->rows();
}

// gate and up lie one behind the other: one product serves both.
template <class T>
Matrix<const T> Mlp<T>::w_gate_up() const {
  const auto gate = gate_->template matrix<const T>();
  return {gate.data(), 2 * intermediate_size_, Index(gate.extent(1)), Index(gate.extent(1))};
}

template <class T>
void Mlp<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const Index rows = a.stream.rows;
  const auto gate_up = frame.put(Keys::gate_up, rows, 2 * intermediate_size_);
  const auto inner = frame.put(Keys::inner, rows, intermediate_size_);
  if (frame.wants(Keys::gate_up)) linear<T>(a.dev, h.gather(), gate_->template factor<T>(2 * intermediate_size_), gate_up);
  if (c_.bias && frame.wants(Keys::gate_up))
    bias_scale<T>(a.dev, Tensor1<const Acc<T>>(gate_bias_->template vector<Acc<T>>().data(), 2 * intermediate_size_), {}, gate_up);
  if (frame.wants(Keys::inner)) {
    swiglu<T>(a.dev, gate_up, c_.gate_multiplier, inner);
    contribute_once<T>(a.dev, *down_, inner);
  }
  a.show(name_, ".gate", columns(gate_up, 0, intermediate_size_), *gate_);
  a.show(name_, ".up", columns(gate_up, intermediate_size_, intermediate_size_), *up_);
  a.show(name_, ".inner", inner, *down_);
  if (!y.data()) return;
  linear<T>(a.dev, inner, down_->template factor<T>(), y, c_.down_multiplier, beta(add));
  if (c_.bias && a.tensor.rank() == 0) add_bias<T>(a.dev, down_bias_->template vector<const Acc<T>>(), c_.down_multiplier, y);
}

template <class T>
void Mlp<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const Index rows = dy.extent(0);
  Scope scope(a.dev.scratch);
  auto dinner = a.scratch<T>("gradient of inner", rows, intermediate_size_);
  const auto dgate_up = frame.put(Keys::dgate_up, rows, 2 * intermediate_size_);
  linear_backward_input<T>(a.dev, dy, down_->template matrix<const T>(), dinner, c_.down_multiplier);
  contribute_once<T>(a.dev, *down_, dinner);
  swiglu_backward<T>(a.dev, dinner, frame.get(Keys::gate_up), c_.gate_multiplier, dgate_up);
  if (c_.bias) {
    biases_backward<T>(a.dev, {gate_bias_, up_bias_}, dgate_up);
    biases_backward<T>(a.dev, {down_bias_}, dy, c_.down_multiplier);
  }
  linear_backward_input<T>(a.dev, dgate_up, w_gate_up(), dh, 1, beta(add));
}

template <class T>
void Mlp<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  weights_backward<T>(a.dev, {down_}, dy, frame.get(Keys::inner), c_.down_multiplier);
  weights_backward<T>(a.dev, {gate_, up_}, frame.get(Keys::dgate_up), h);
}

void read_mlp(Section& s, ModelConfig& m) {
  MlpConfig& c = m.mlp;
  c.intermediate_size = s.get("intermediate_size", c.intermediate_size, "inner channels, sharded over the tensor axis").positive().at_most(widest);
  c.bias = s.get("bias", c.bias, "biases on gate, up and down");
  c.gate_multiplier = s.get("gate_multiplier", c.gate_multiplier, "scales the gate before SiLU");
  c.down_multiplier = s.get("down_multiplier", c.down_multiplier, "scales the output");
}

LayerFlops mlp_flops(const ModelConfig& m, Index) {
  LayerFlops f;
  f.products = 6.0 * m.hidden_size * m.mlp.intermediate_size;
  return f;
}

template class Mlp<double>;
template class Mlp<float>;
template class Mlp<bf16>;

}  // namespace gyr
