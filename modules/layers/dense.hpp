// SPDX-License-Identifier: BSD-3-Clause
// Linear layer with activation before an output matrix: y = a(h w' + b). Weights NAME.weight and, if it has a bias,
// NAME.bias; a is the activation. It is not sharded: every tensor-parallel rank computes it for its own rows of the
// residual stream.
#pragma once

#include "kernels/ops/activation.hpp"
#include "modules/model/layer.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

template <class T>
class Dense {
 public:
  Dense(const ModelConfig& c, const std::string& name, Activation activation, Parameters& parameters, bool biased = true)
      : activation_(activation),
        w_(&parameters.declare(
            {name + ".weight", {c.hidden_size, c.hidden_size}, replicated(), normal(c.init_std), Storage::factor, true, false, true})) {
    if (biased) b_ = &parameters.declare({name + ".bias", {c.hidden_size}, replicated(), zeros(), Storage::wide, false, false, true});
  }

  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> h) {
    const Index rows = h.extent(0), width = h.extent(1);
    frame.refer(read, h);
    const auto u = frame.put(linear_rows, rows, width), y = frame.put(active, rows, width);
    linear<T>(a.dev, h, w_->template factor<T>(), u);
    if (b_) add_bias<T>(a.dev, b_->template vector<const Acc<T>>(), 1, u);
    activate<T>(a.dev, activation_, u, 1, y);
    return y;
  }

  // dy may use the memory of y or of dh. The gradient of the activation's input overwrites y.
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dh) {
    const auto u = frame.get(linear_rows), du = frame.get(active);
    activate_backward<T>(a.dev, activation_, dy, u, 1, du);
    weights_backward<T>(a.dev, {w_}, du, frame.get(read));
    if (b_) biases_backward<T>(a.dev, {b_}, du);
    linear_backward_input<T>(a.dev, du, w_->template matrix<const T>(), dh);
  }

 private:
  static constexpr Key<Tensor2<T>> read{"input of the head's linear layer"}, linear_rows{"output of the head's linear layer"},
      active{"output of the head's activation"};

  Activation activation_;
  Parameter* w_;
  Parameter* b_ = nullptr;
};

}  // namespace gyr
