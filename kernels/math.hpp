// SPDX-License-Identifier: BSD-3-Clause
// Scalar functions that vectorise inside kernels. The float exponential is a polynomial within 2 ulp; double uses the library's.
#pragma once

#include <cmath>

#include "kernels/scalar.hpp"

namespace gyr {

KOKKOS_INLINE_FUNCTION double fast_exp(double x) { return std::exp(x); }

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2, exp(r) by its Taylor polynomial of degree 7.
// Fused multiply-adds carry the two-part ln 2, so that no reordering of sums can spoil the reduction. Results below the smallest
// normal number are zero, those above the largest infinity, and NaN stays NaN.
KOKKOS_INLINE_FUNCTION float fast_exp(float x) {
  constexpr float lowest = -87.3365402f, highest = 88.7228317f;  // what normal numbers hold
  const float above = x > lowest ? x : lowest;                  // NaN fails both comparisons, so that n is always a number
  const float clamped = above < highest ? above : highest;
  const float n = std::rint(clamped * 1.44269504f);
  float r = std::fma(n, -0.693359375f, clamped);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.0f / 5040;
  p = std::fma(p, r, 1.0f / 720);
  p = std::fma(p, r, 1.0f / 120);
  p = std::fma(p, r, 1.0f / 24);
  p = std::fma(p, r, 1.0f / 6);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  // Adding n to the exponent, not multiplying by 2^n, which is no float where n = 128.
  const float y = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, p) + (std::uint32_t(std::int32_t(n)) << 23));
  const float positive = x < lowest ? 0.0f : y;
  return x <= highest ? positive : x + __builtin_inff();
}

template <class A> KOKKOS_INLINE_FUNCTION A sigmoid(A x) { return A(1) / (A(1) + fast_exp(-x)); }
template <class A> KOKKOS_INLINE_FUNCTION A silu(A x) { return x * sigmoid(x); }
// silu'(x) = sig(x) (1 + x (1 - sig(x)))
template <class A> KOKKOS_INLINE_FUNCTION A silu_slope(A x) {
  const A s = sigmoid(x);
  return s * (A(1) + x * (A(1) - s));
}

}  // namespace gyr
