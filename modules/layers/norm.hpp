// SPDX-License-Identifier: BSD-3-Clause
// Norm of the rows of the residual stream, with its weights: RMSNorm, or LayerNorm with or without bias. If a norm is
// the last step of a layer, its output is stored, and activation recomputation (a second forward) may need only its
// statistics.
#pragma once

#include "kernels/ops/layernorm.hpp"
#include "modules/model/layer.hpp"

namespace gyr {

template <class T>
class Norm {
 public:
  // Weights NAME.weight and, for a LayerNorm with bias, NAME.bias.
  Norm(const ModelConfig& c, const std::string& name, Parameters& parameters)
      : name_(name), eps_(c.rms_norm_eps), offset_(c.norm_offset), centred_(c.norm != NormType::rms),
        g_(parameters.declare({name + ".weight", {c.hidden_size}, replicated(), constant(1 - offset_), Storage::wide, false, false, true})) {
    if (c.norm == NormType::layer)
      b_ = &parameters.declare({name + ".bias", {c.hidden_size}, replicated(), zeros(), Storage::wide, false, false, true});
  }

  // Stores a reference to x, which must stay allocated until the backward has ended.
  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<const T> x) {
    frame.refer(input, x);
    const auto rstd = frame.put(inverse_deviation, x.extent(0));
    const auto mean = centred_ ? frame.put(means, x.extent(0)) : Tensor1<Acc<T>>();
    const auto h = frame.put(normed, x.extent(0), x.extent(1));
    if (frame.wants(normed)) {
      compute(a, x, h, mean, rstd);
    } else if (frame.wants(inverse_deviation)) {
      Scope scope(a.dev.scratch);
      compute(a, x, a.scratch<T>("recomputed norm output", Index(x.extent(0)), Index(x.extent(1))), mean, rstd);
    }
    a.show(Observed::activation, name_, h);
    return h;
  }
  // True if a forward has to compute the norm output; false if it needs only the statistics, or nothing.
  bool needs_norm_output(const Frame& frame) const { return frame.wants(normed); }
  Tensor2<T> normed_rows(Frame& frame) const { return frame.get(normed); }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dh, Add add, Tensor2<T> dx) {
    const auto x = frame.get(input);
    const auto rstd = frame.get(inverse_deviation);
    const auto dg = g_.template vector_gradient<Acc<T>>();
    if (centred_)
      layernorm_backward<T>(a.dev, dh, x, weight(), frame.get(means), rstd, add, dx, dg,
                            b_ ? b_->template vector_gradient<Acc<T>>() : Tensor1<Acc<T>>());
    else rmsnorm_backward<T>(a.dev, dh, x, weight(), rstd, add, dx, dg, offset_);
  }

 private:
  static constexpr Key<Tensor2<const T>> input{"norm input", RecomputeCost::sum, Phase::input_gradients};
  static constexpr Key<Tensor1<Acc<T>>> inverse_deviation{"inverse root mean square", RecomputeCost::sum, Phase::input_gradients},
      means{"means", RecomputeCost::sum, Phase::input_gradients};
  static constexpr Key<Tensor2<T>> normed{"norm output", RecomputeCost::pass};

  void compute(Pass& a, Tensor2<const T> x, Tensor2<T> h, Tensor1<Acc<T>> mean, Tensor1<Acc<T>> rstd) const {
    if (centred_) layernorm<T>(a.dev, x, weight(), b_ ? b_->template vector<const Acc<T>>() : Tensor1<const Acc<T>>(), eps_, h, mean, rstd);
    else rmsnorm<T>(a.dev, x, weight(), eps_, h, rstd, offset_);
  }
  Tensor1<const Acc<T>> weight() const { return g_.template vector<const Acc<T>>(); }

  std::string name_;
  double eps_, offset_;
  bool centred_;
  Parameter& g_;
  Parameter* b_ = nullptr;
};

}  // namespace gyr
