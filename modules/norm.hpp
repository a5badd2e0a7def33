// SPDX-License-Identifier: BSD-3-Clause
// RMSNorm with its weight.
#pragma once

#include "modules/layer.hpp"

namespace gyr {

template <class T>
class Norm {
 public:
  Norm(Index hidden_size, double rms_norm_eps, const std::string& name, Parameters<T>& parameters)
      : name_(name), rms_norm_eps_(rms_norm_eps),
        g_(parameters.declare({name + ".weight", {hidden_size}, replicated(), ones(), Storage::wide, false})) {}

  // Keeps x by reference: it must stay on pass.saved until backward.
  Tensor2<T> forward(Pass<T>& a, Tensor2<const T> x) {
    a.saved.refer("x", x);
    auto rstd = a.saved.template push<Tensor1<Acc<T>>>("rstd", x.extent(0));
    auto h = a.saved.template push<Tensor2<T>>("h", x.extent(0), x.extent(1));
    rmsnorm<T>(a.dev, x, g_.template vector<const Acc<T>>(), rms_norm_eps_, h, rstd);
    a.show(Observed::activation, name_, h);
    return h;
  }
  void backward(Pass<T>& a, Tensor2<const T> dh, Add add, Tensor2<T> dx) {
    a.saved.template pop<Tensor2<T>>("h");
    const auto rstd = a.saved.template pop<Tensor1<Acc<T>>>("rstd");
    const auto x = a.saved.template pop<Tensor2<const T>>("x");
    rmsnorm_backward<T>(a.dev, dh, x, g_.template vector<const Acc<T>>(), rstd, add, dx, g_.template vector_gradient<Acc<T>>());
  }

 private:
  std::string name_;
  double rms_norm_eps_;
  Parameter& g_;
};

}  // namespace gyr
