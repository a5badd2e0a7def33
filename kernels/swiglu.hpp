// SPDX-License-Identifier: BSD-3-Clause
// y = up silu(m gate), with gate and up side by side in one matrix.   R rows, F intermediate_size, m the gate multiplier
#pragma once

#include "kernels/device.hpp"

namespace gyr {

template <class T>
void swiglu(Device&, Tensor2<const T> gate_up /*(R,2F)*/, double multiplier, Tensor2<T> y /*(R,F)*/);

// With s = m gate:   dup = dy silu(s),   dgate = dy up silu'(s) m
template <class T>
void swiglu_backward(Device&, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up);

}  // namespace gyr
