// SPDX-License-Identifier: BSD-3-Clause
// One AdamW update (Loshchilov & Hutter, decoupled decay) over a flat run of parameters.
//   m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2,   w = w - lr (m/c1 / (sqrt(v/c2) + eps) + decay w),   c = 1 - b^t
#pragma once

#include <cmath>

#include "kernels/device.hpp"

namespace gyr {

struct AdamW {
  double lr, beta1, beta2, epsilon, weight_decay;
  double correction1, correction2;  // 1 - beta^t
  double gradient_scale;            // clipping: multiplies g
};

// The same of one parameter, with what does not depend on it computed beforehand.
template <class A>
struct AdamWUpdate {
  A keep, step, beta1, gain1, beta2, gain2, root_correction, epsilon, gradient_scale;

  explicit AdamWUpdate(const AdamW&);

  // The new w; m and v move on.
  GYR_FUNCTION A operator()(A gradient, A& m, A& v, A w) const {
    const A g = gradient_scale * gradient;
    m = beta1 * m + gain1 * g;
    v = beta2 * v + gain2 * g * g;
    return keep * w - step * m / (std::sqrt(v) * root_correction + epsilon);
  }
};

// master may be empty where T is Acc<T>: w is then its own master. Otherwise w = T(master) after the update.
template <class T>
void adamw(Device&, const AdamW&, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v, Tensor1<Acc<T>> master, Tensor1<T> w);

}  // namespace gyr
