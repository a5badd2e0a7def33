// SPDX-License-Identifier: BSD-3-Clause
// Neighbouring tensor-parallel ranks that hold the same part of a weight compute the same values. One of them
// contributes to the sum over the tensor-parallel group, the others contribute zeros. The gradients of weights that
// they share are then summed over them like all others.
#pragma once

#include "kernels/ops/elementwise.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// Sets x to zero except on the contributing rank. x is the input of the row-parallel GEMM with w, or the gradient of
// that input.
template <class T>
void contribute_once(Device& dev, const Parameter& w, Tensor2<T> x) {
  if (!w.contributes()) fill<T>(dev, flat(x), 0);
}

}  // namespace gyr
