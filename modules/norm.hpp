// SPDX-License-Identifier: BSD-3-Clause
// RMSNorm of rows of the residual stream, with its weight.
#pragma once

#include "modules/layer.hpp"

namespace gyr {

template <class T>
class Norm {
 public:
  Norm(Index hidden_size, double rms_norm_eps, const std::string& name, Parameters& parameters)
      : name_(name), rms_norm_eps_(rms_norm_eps),
        g_(parameters.declare({name + ".weight", {hidden_size}, replicated(), ones(), Storage::wide, false, true})) {}

  // Keeps x by reference: it must stay until the backward has ended.
  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<const T> x) {
    frame.refer(input, x);
    const auto rstd = frame.put(inverse_rms, x.extent(0));
    const auto h = frame.put(normed, x.extent(0), x.extent(1));
    if (frame.wants(normed)) rmsnorm<T>(a.dev, x, g_.template vector<const Acc<T>>(), rms_norm_eps_, h, rstd);
    a.show(Observed::activation, name_, h);
    return h;
  }
  Tensor2<T> normed_rows(Frame& frame) const { return frame.get(normed); }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dh, Add add, Tensor2<T> dx) {
    rmsnorm_backward<T>(a.dev, dh, frame.get(input), g_.template vector<const Acc<T>>(), frame.get(inverse_rms), add, dx,
                        g_.template vector_gradient<Acc<T>>());
  }

 private:
  static constexpr Key<Tensor2<const T>> input{"norm input", Effort::sum, Phase::input_gradients};
  static constexpr Key<Tensor1<Acc<T>>> inverse_rms{"inverse root mean square", Effort::sum, Phase::input_gradients};
  static constexpr Key<Tensor2<T>> normed{"normed", Effort::pass};

  std::string name_;
  double rms_norm_eps_;
  Parameter& g_;
};

}  // namespace gyr
