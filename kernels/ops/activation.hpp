// SPDX-License-Identifier: BSD-3-Clause
// Activation functions of an MLP, applied between its two GEMMs.   R rows, F channels, m a multiplier, a an activation
//   glu       y = up a(m gate), with gate and up next to each other in one matrix (Shazeer, "GLU Variants Improve Transformer", 2020).
//             clamped_swiglu transforms up as well, see below.
//   activate  y = a(m x)
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

// Names as in Hugging Face: silu, gelu, gelu_new (gelu_tanh here), relu2, tanh, relu, sigmoid, quick_gelu.
//   silu       x sigmoid(x)
//   gelu       x Phi(x), Phi the distribution function of a standard normal
//   gelu_tanh  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//   relu2      max(x, 0)^2
//   tanh       tanh(x)
//   clamped_swiglu  gpt-oss: c sigmoid(1.702 c) with c = min(x, 7); in glu, clamp(up, -7, 7) + 1 replaces up
//   relu       max(x, 0)
//   sigmoid    sigmoid(x): a gate of what another branch computes
//   quick_gelu x sigmoid(1.702 x): CLIP
enum class Activation { silu, gelu, gelu_tanh, relu2, tanh, clamped_swiglu, relu, sigmoid, quick_gelu };

template <class T>
void glu(Device&, Activation, Tensor2<const T> gate_up /*(R,2F)*/, double multiplier, Tensor2<T> y /*(R,F)*/);
// With s = m gate:   dup = dy a(s),   dgate = dy up a'(s) m
template <class T>
void glu_backward(Device&, Activation, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up);

template <class T>
void activate(Device&, Activation, Tensor2<const T> x /*(R,F)*/, double multiplier, Tensor2<T> y /*(R,F)*/);
// dx = dy a'(m x) m
template <class T>
void activate_backward(Device&, Activation, Tensor2<const T> dy, Tensor2<const T> x, double multiplier, Tensor2<T> dx);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void glu(Device&, Activation, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y);
template <class T>
void glu_backward(Device&, Activation, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up);
template <class T>
void activate(Device&, Activation, Tensor2<const T> x, double multiplier, Tensor2<T> y);
template <class T>
void activate_backward(Device&, Activation, Tensor2<const T> dy, Tensor2<const T> x, double multiplier, Tensor2<T> dx);

}  // namespace backend

}  // namespace gyr
