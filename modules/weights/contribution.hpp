// SPDX-License-Identifier: BSD-3-Clause
// Neighbours on the tensor axis that hold the same part of a weight compute the same: one of them contributes to what is summed over the
// axis, the others zeros. Gradients of what they share are then summed over them like all others.
#pragma once

#include "kernels/ops/elementwise.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// x = 0 except on the rank that contributes; x: the input of the row-parallel product with w, or its gradient.
template <class T>
void contribute_once(Device& dev, const Parameter& w, Tensor2<T> x) {
  if (!w.contributes()) fill<T>(dev, flat(x), 0);
}

}  // namespace gyr
