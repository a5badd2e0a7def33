// SPDX-License-Identifier: BSD-3-Clause
// Dropout as a kernel argument. A kernel reads the current step and sample from device memory when it starts, so that
// replayed CUDA graphs use new values.
#pragma once

#include "kernels/cuda/machine/primitives.hpp"
#include "kernels/ops/dropout.hpp"

namespace gyr::cuda {

struct DropoutOf : Dropout {
  explicit DropoutOf(const Dropout& d) : Dropout(d) {
    static_assert(sizeof(DrawnAt) == 2 * sizeof(std::int64_t));
    if (d.drops()) now_ = Matrix<const std::int64_t>(&d.now->step, 1, 2, 2);
  }
  // Reads no memory if dropout is disabled.
  GYR_DEVICE Draws draws() const { return drops() ? at({now_.load(0, 0), now_.load(0, 1)}) : Draws(); }

 private:
  Global<const std::int64_t> now_;
};

}  // namespace gyr::cuda
