// SPDX-License-Identifier: BSD-3-Clause
// AdamW over a stage's parameters: master weights and moments in the accumulator's precision, weight decay and learning rate per group of parameters.
#pragma once

#include "kernels/adamw.hpp"
#include "src/engine/optimizer_config.hpp"
#include "src/engine/stage.hpp"

namespace gyr {

template <class T>
class Optimizer {
 public:
  using A = Acc<T>;
  Optimizer(const OptimizerConfig&, Parameters<T>&, Arena& arena);

  // Sets the moments to zero and takes the weights' current values as masters.
  void reset(Device&);

  // Adds the sum of squares of the gradients this rank counts, every logical element once over tensor and pipeline axes, to `sum` (1) on the device.
  void add_gradient_squares(Device&, Tensor1<double> sum) const;
  // One update with gradients scaled by gradient_scale; `step` counts from 1.
  void step(Device&, double lr, std::int64_t step, double gradient_scale);

  // Where the state of a trained parameter lies: first moment, second moment, master. The master is the weight itself where empty.
  Tensor1<A> moment1(const Parameter& p) const { return part(m_, p); }
  Tensor1<A> moment2(const Parameter& p) const { return part(v_, p); }
  Tensor1<A> master(const Parameter& p) const { return has_master(p) ? part(master_, p) : Tensor1<A>(); }
  bool has_master(const Parameter& p) const { return !std::is_same_v<T, A> && p.weight.storage == Storage::narrow && p.trained; }

 private:
  ParameterGroup group(const Parameter&) const;
  Tensor1<A> part(const Tensor1<A>& all, const Parameter& p) const {
    ensure(p.trained, "{} is frozen and has no optimizer state", p.weight.name);
    return Tensor1<A>(all.data() + p.offset, p.size());
  }

  OptimizerConfig c_;
  Parameters<T>& parameters_;
  Tensor1<A> m_, v_, master_;
};

}  // namespace gyr
