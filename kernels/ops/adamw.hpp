// SPDX-License-Identifier: BSD-3-Clause
// AdamW update (Loshchilov & Hutter, decoupled weight decay) of a flat range of parameters.
//   m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2,   w = w - lr (m/c1 / (sqrt(v/c2) + eps) + decay w),   c = 1 - b^t
//   g gradient, m and v Adam moments, w weight, b1 and b2 beta1 and beta2, t step number from 1
#pragma once

#include <array>
#include <cmath>

#include "kernels/device/device.hpp"

namespace gyr {

// Settings that stay the same in all steps; passed to kernels as arguments.
struct AdamW {
  double beta1, beta2, epsilon;
};
// Values that change in every step. Kernels read them from device memory, so that a captured CUDA graph of the update
// can be replayed.
struct AdamWStep {
  double lr, weight_decay;
  double correction1, correction2;  // bias corrections of the Adam moments: 1 - beta^t
  double gradient_scale;            // factor of the gradient, for clipping
};
template <class A>
using AdamWStepValues = std::array<A, 4>;
template <class A>
AdamWStepValues<A> step_values(const AdamWStep&);

// Update of one parameter, with the factors that all parameters have in common computed in advance.
template <class A>
struct AdamWUpdate {
  A beta1, gain1, beta2, gain2, epsilon;
  A keep = 1, step = 0, root_correction = 1, gradient_scale = 1;

  explicit AdamWUpdate(const AdamW&);
  // Copy of this update with the values of one step; `values` is the result of step_values.
  GYR_FUNCTION AdamWUpdate in(const A* values) const {
    AdamWUpdate update = *this;
    update.keep = values[0], update.step = values[1], update.root_correction = values[2], update.gradient_scale = values[3];
    return update;
  }

  // Returns the new w and updates m and v.
  GYR_FUNCTION A operator()(A gradient, A& m, A& v, A w) const {
    const A g = gradient_scale * gradient;
    m = beta1 * m + gain1 * g;
    v = beta2 * v + gain2 * g * g;
    return keep * w - step * m / (std::sqrt(v) * root_correction + epsilon);
  }
};

// `step`: step_values the current step, in device memory. master may be empty if T is Acc<T>: w is then its own master
// weight. Otherwise w = T(master) after the update.
template <class T>
void adamw(Device&, const AdamW&, Tensor1<const Acc<T>> step /*(4)*/, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v,
           Tensor1<Acc<T>> master, Tensor1<T> w);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void adamw(Device&, const AdamW&, Tensor1<const Acc<T>> step, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v, Tensor1<Acc<T>> master,
           Tensor1<T> w);

}  // namespace backend

}  // namespace gyr
