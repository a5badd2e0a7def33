// SPDX-License-Identifier: BSD-3-Clause
// What one layer hands to the next, and a stage of the pipeline to the next.
#pragma once

#include "kernels/any_tensor.hpp"

namespace gyr {

// The residual stream x (R,D), or its gradient.
struct Bundle {
  AnyTensor2 x = {};

  // body(tensor) for each tensor of it, in an order that is the same everywhere.
  template <class Body>
  void each(Body&& body) const {
    body(x);
  }
};

}  // namespace gyr
