// SPDX-License-Identifier: BSD-3-Clause
// LAMB update (You et al. 2020) of a flat range of a weight: Adam's direction, scaled by the norm of the whole weight.
//   m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2,   r = m/c1 / (sqrt(v/c2) + eps) + decay w,   c = 1 - b^t
//   w = w - lr q r,   q = |w| / |r| within the bounds, and 1 if a norm is 0
// Two passes: the first updates the moments and adds up the squares of w and r without storing r; after these sums have
// been added over the ranks that hold parts of the weight, the second computes r again and updates w.
#pragma once

#include "kernels/ops/updates/weight_update.hpp"

namespace gyr {

struct Lamb {
  double beta1, beta2, epsilon;
  double min_ratio = 0, max_ratio = 0;  // bounds of q; 0: none

  UpdateValues values(const StepOfWeight&) const;
};

template <class A>
struct LambElement {
  A beta1, gain1, beta2, gain2, epsilon;
  double min_ratio, max_ratio;
  A lr = 0, decay = 0, correction = 1, root_correction = 1, gradient_scale = 1;

  explicit LambElement(const Lamb& l)
      : beta1(A(l.beta1)), gain1(A(1 - l.beta1)), beta2(A(l.beta2)), gain2(A(1 - l.beta2)), epsilon(A(l.epsilon)), min_ratio(l.min_ratio),
        max_ratio(l.max_ratio) {}
  GYR_FUNCTION void set(const A* values) {
    lr = values[0], decay = values[1], correction = values[2], root_correction = values[3], gradient_scale = values[4];
  }
  GYR_FUNCTION void advance(A gradient, A& m, A& v) const {
    const A g = gradient_scale * gradient;
    m = beta1 * m + gain1 * g;
    v = beta2 * v + gain2 * g * g;
  }
  GYR_FUNCTION A direction(A m, A v, A w) const { return m * correction / (std::sqrt(v) * root_correction + epsilon) + decay * w; }
  // q, from the sums of squares of w and r
  GYR_FUNCTION A ratio(double weight, double direction) const {
    if (!(weight > 0 && direction > 0)) return 1;
    const double q = std::sqrt(weight / direction), bounded = q < min_ratio ? min_ratio : q;
    return A(max_ratio > 0 && bounded > max_ratio ? max_ratio : bounded);
  }
};

// First pass. w: master weight. sums(0) += sum of w^2, sums(1) += sum of r^2, in double, in fixed blocks and order;
// without `sums`, the elements are not counted.
template <class A>
void lamb_moments(Device&, const Lamb&, Tensor1<const A> values /*(8)*/, Tensor1<const A> g, Tensor1<A> m, Tensor1<A> v, Tensor1<const A> w,
                  Tensor1<double> sums /*(2)*/);
// Second pass. `sums`: those of the whole weight; without them q is 1. master may be empty if T is Acc<T>.
template <class T>
void lamb_step(Device&, const Lamb&, Tensor1<const Acc<T>> values /*(8)*/, Tensor1<const double> sums /*(2)*/, Tensor1<const Acc<T>> m,
               Tensor1<const Acc<T>> v, Tensor1<Acc<T>> master, Tensor1<T> w);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

Index lamb_strips(Index elements);  // strips of the first pass, each of which leaves its sums in `partial` (2, strips)
template <class A>
void lamb_moments(Device&, const Lamb&, Tensor1<const A> values, Tensor1<const A> g, Tensor1<A> m, Tensor1<A> v, Tensor1<const A> w,
                  Tensor1<double> sums, Tensor1<double> partial);
template <class T>
void lamb_step(Device&, const Lamb&, Tensor1<const Acc<T>> values, Tensor1<const double> sums, Tensor1<const Acc<T>> m, Tensor1<const Acc<T>> v,
               Tensor1<Acc<T>> master, Tensor1<T> w);

}  // namespace backend

}  // namespace gyr
