// SPDX-License-Identifier: BSD-3-Clause
// Soft cap, which bounds scores and logits (Gemma 2):  y = cap tanh(x / cap),  dx = (1 - (y / cap)^2) dy, which needs
// only y
#pragma once

#include "kernels/base/math.hpp"
#include "kernels/device/device.hpp"

namespace gyr {

template <class A>
struct SoftCap {
  A cap = 0, inverse = 0;  // cap and its inverse; 0: no soft cap

  SoftCap() = default;
  explicit SoftCap(double cap) : cap(A(cap)), inverse(cap > 0 ? A(1 / cap) : A(0)) {}
  GYR_FUNCTION bool caps() const { return cap > A(0); }
  GYR_FUNCTION A at(A x) const { return caps() ? cap * fast_tanh(x * inverse) : x; }
  GYR_FUNCTION A slope(A y) const { return caps() ? A(1) - (y * inverse) * (y * inverse) : A(1); }
};

// In place: x = cap tanh(x / cap).   cap > 0
template <class A>
void soft_cap(Device&, double cap, Tensor2<A> x);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class A>
void soft_cap(Device&, double cap, Tensor2<A> x);

}  // namespace backend

}  // namespace gyr
