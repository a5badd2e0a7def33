// SPDX-License-Identifier: BSD-3-Clause
// A layer in front of an output matrix, y = a(h w' + b) with NAME.weight and NAME.bias, if it has one, a an activation. It is not sharded: every rank
// of the tensor axis has it for the rows of the stream that it keeps.
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

  // dy may lie where y is, or where dh is to be. The gradient behind the activation takes the place of y.
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dh) {
    const auto u = frame.get(linear_rows), du = frame.get(active);
    activate_backward<T>(a.dev, activation_, dy, u, 1, du);
    weights_backward<T>(a.dev, {w_}, du, frame.get(read));
    if (b_) biases_backward<T>(a.dev, {b_}, du);
    linear_backward_input<T>(a.dev, du, w_->template matrix<const T>(), dh);
  }

 private:
  static constexpr Key<Tensor2<T>> read{"what the head reads"}, linear_rows{"head: linear"}, active{"head: active"};

  Activation activation_;
  Parameter* w_;
  Parameter* b_ = nullptr;
};

}  // namespace gyr
