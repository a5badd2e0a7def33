// SPDX-License-Identifier: BSD-3-Clause
// One AdamW update (Loshchilov & Hutter, decoupled decay) over a flat run of parameters.
//   m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2,   w = w - lr (m/c1 / (sqrt(v/c2) + eps) + decay w),   c = 1 - b^t
#pragma once

#include <array>
#include <cmath>

#include "kernels/device/device.hpp"

namespace gyr {

// What stays from step to step, which kernels are given,
struct AdamW {
  double beta1, beta2, epsilon;
};
// and what changes, which they read from memory of the device, so that an update can be told again as it is.
struct AdamWStep {
  double lr, weight_decay;
  double correction1, correction2;  // 1 - beta^t
  double gradient_scale;            // clipping: multiplies g
};
template <class A>
using AdamWStepValues = std::array<A, 4>;
template <class A>
AdamWStepValues<A> numbers_of(const AdamWStep&);

// The update of one parameter, with what does not depend on it computed beforehand.
template <class A>
struct AdamWUpdate {
  A beta1, gain1, beta2, gain2, epsilon;
  A keep = 1, step = 0, root_correction = 1, gradient_scale = 1;

  explicit AdamWUpdate(const AdamW&);
  // In the step of these numbers.
  GYR_FUNCTION AdamWUpdate in(const A* numbers) const {
    AdamWUpdate update = *this;
    update.keep = numbers[0], update.step = numbers[1], update.root_correction = numbers[2], update.gradient_scale = numbers[3];
    return update;
  }

  // The new w; m and v move on.
  GYR_FUNCTION A operator()(A gradient, A& m, A& v, A w) const {
    const A g = gradient_scale * gradient;
    m = beta1 * m + gain1 * g;
    v = beta2 * v + gain2 * g * g;
    return keep * w - step * m / (std::sqrt(v) * root_correction + epsilon);
  }
};

// `step`: numbers_of the present one, on the device. master may be empty where T is Acc<T>: w is then its own master. Otherwise w = T(master) after
// the update.
template <class T>
void adamw(Device&, const AdamW&, Tensor1<const Acc<T>> step /*(4)*/, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v,
           Tensor1<Acc<T>> master, Tensor1<T> w);

}  // namespace gyr
