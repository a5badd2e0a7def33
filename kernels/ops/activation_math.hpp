// SPDX-License-Identifier: BSD-3-Clause
// Activation functions of activation.hpp and their derivatives for one scalar, and a dispatch that selects the
// activation once, outside of loops.
#pragma once

#include <type_traits>

#include "kernels/base/math.hpp"
#include "kernels/ops/activation.hpp"

namespace gyr {

inline constexpr double gelu_slant = 1.5957691216057308;  // 2 sqrt(2/pi): (1 + tanh(u)) / 2 = sigmoid(2 u)
inline constexpr double gelu_cubic = 0.044715;
inline constexpr double clamped_limit = 7, clamped_slant = 1.702, quick_slant = 1.702;

template <Activation a, class A>
GYR_FUNCTION A activation_at(A x) {
  if constexpr (a == Activation::silu) return silu(x);
  else if constexpr (a == Activation::gelu) return A(0.5) * x * (A(1) + std::erf(x * A(M_SQRT1_2)));
  else if constexpr (a == Activation::gelu_tanh) return x * sigmoid(A(gelu_slant) * x * (A(1) + A(gelu_cubic) * x * x));
  else if constexpr (a == Activation::tanh) return std::tanh(x);
  else if constexpr (a == Activation::clamped_swiglu) {
    const A held = x < A(clamped_limit) ? x : A(clamped_limit);
    return held * sigmoid(A(clamped_slant) * held);
  } else if constexpr (a == Activation::relu) return x > A(0) ? x : A(0);
  else if constexpr (a == Activation::sigmoid) return sigmoid(x);
  else if constexpr (a == Activation::quick_gelu) return x * sigmoid(A(quick_slant) * x);
  else return x > A(0) ? x * x : A(0);
}

template <Activation a, class A>
GYR_FUNCTION A activation_slope(A x) {
  if constexpr (a == Activation::silu) return silu_slope(x);
  else if constexpr (a == Activation::gelu)
    return A(0.5) * (A(1) + std::erf(x * A(M_SQRT1_2))) + x * A(0.5 * M_2_SQRTPI * M_SQRT1_2) * fast_exp(A(-0.5) * x * x);
  else if constexpr (a == Activation::gelu_tanh) {
    const A squared = A(gelu_cubic) * x * x, s = sigmoid(A(gelu_slant) * x * (A(1) + squared));
    return s + x * s * (A(1) - s) * A(gelu_slant) * (A(1) + A(3) * squared);
  } else if constexpr (a == Activation::tanh) return A(1) - std::tanh(x) * std::tanh(x);
  else if constexpr (a == Activation::clamped_swiglu) {
    const A s = sigmoid(A(clamped_slant) * x);
    return x > A(clamped_limit) ? A(0) : s * (A(1) + A(clamped_slant) * x * (A(1) - s));
  } else if constexpr (a == Activation::relu) return x > A(0) ? A(1) : A(0);
  else if constexpr (a == Activation::sigmoid) return sigmoid(x) * (A(1) - sigmoid(x));
  else if constexpr (a == Activation::quick_gelu) {
    const A s = sigmoid(A(quick_slant) * x);
    return s * (A(1) + A(quick_slant) * x * (A(1) - s));
  } else return x > A(0) ? A(2) * x : A(0);
}

// Factor of a(gate) in glu, as a function of up, and its derivative. The factor is up itself, or clamp(up, -7, 7) + 1
// for clamped_swiglu.
template <Activation a, class A>
GYR_FUNCTION A up_factor(A up) {
  if constexpr (a != Activation::clamped_swiglu) return up;
  else return (up < A(-clamped_limit) ? A(-clamped_limit) : up > A(clamped_limit) ? A(clamped_limit) : up) + A(1);
}
template <Activation a, class A>
GYR_FUNCTION A up_factor_slope(A up) {
  if constexpr (a != Activation::clamped_swiglu) return A(1);
  else return up < A(-clamped_limit) || up > A(clamped_limit) ? A(0) : A(1);
}

// Calls body(std::integral_constant<Activation, a>()), so that loops inside body are compiled for one activation.
template <class Body>
void with_activation(Activation a, const Body& body) {
  switch (a) {
    case Activation::silu: return body(std::integral_constant<Activation, Activation::silu>());
    case Activation::gelu: return body(std::integral_constant<Activation, Activation::gelu>());
    case Activation::gelu_tanh: return body(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::relu2: return body(std::integral_constant<Activation, Activation::relu2>());
    case Activation::tanh: return body(std::integral_constant<Activation, Activation::tanh>());
    case Activation::clamped_swiglu: return body(std::integral_constant<Activation, Activation::clamped_swiglu>());
    case Activation::relu: return body(std::integral_constant<Activation, Activation::relu>());
    case Activation::sigmoid: return body(std::integral_constant<Activation, Activation::sigmoid>());
    case Activation::quick_gelu: return body(std::integral_constant<Activation, Activation::quick_gelu>());
  }
}

}  // namespace gyr
