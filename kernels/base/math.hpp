// SPDX-License-Identifier: BSD-3-Clause
// Scalar functions that vectorise inside kernels. The float exponential is a polynomial within 2 ulp; double uses the library's.
#pragma once

#include <cmath>

#include "kernels/base/scalar.hpp"

namespace gyr {

GYR_FUNCTION double fast_exp(double x) { return std::exp(x); }

// exp(x) = 2^n (1 + r + r^2 q(r)), n = round(x / ln 2), |r| <= ln(2)/2, q the minimax polynomial of degree 4 (error 3e-9 of exp r).
// Results below the smallest normal number are zero, results above the largest are infinity, and NaN stays NaN. Fused multiply-adds do the
// rounding and the range reduction, so that a compiler that reorders sums cannot spoil them. A GPU uses its library function, which has hardware
// support.
GYR_FUNCTION float fast_exp(float x) {
#if defined(__CUDA_ARCH__)
  return std::exp(x);
#else
  constexpr float lowest = -87.3365402f, highest = 88.7228317f;  // range of x in which the results are normal numbers
  constexpr float shift = 12582912.0f;                           // 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits
  const float shifted = std::fma(x, 1.44269504f, shift), n = shifted - shift;
  const float r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, x));  // ln 2 is subtracted in two parts, the first with few bits
  float p = 1.38145290e-3f;
  p = std::fma(p, r, 8.36875049e-3f);
  p = std::fma(p, r, 4.16683913e-2f);
  p = std::fma(p, r, 1.66665204e-1f);
  p = std::fma(p, r, 4.99999934e-1f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  // n is added to the exponent bits, because a factor 2^n is not a float for n = 128.
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, p) + (__builtin_bit_cast(std::uint32_t, shifted) << 23);
  const float y = x < lowest ? 0.0f : __builtin_bit_cast(float, bits);
  return x <= highest ? y : x + __builtin_inff();
#endif
}

GYR_FUNCTION double fast_tanh(double x) { return std::tanh(x); }

// tanh(x) = x + x^3 p(x^2) for |x| < 0.625, p of degree 4 (Cephes), otherwise 1 - 2 / (e^(2|x|) + 1) with the sign of
// x: within 2 ulp.
GYR_FUNCTION float fast_tanh(float x) {
  const float square = x * x, size = x < 0 ? -x : x;
  float p = -5.70498872745e-3f;
  p = std::fma(p, square, 2.06390887954e-2f);
  p = std::fma(p, square, -5.37397155531e-2f);
  p = std::fma(p, square, 1.33314422036e-1f);
  p = std::fma(p, square, -3.33332819422e-1f);
  const float small = std::fma(p * square, x, x), large = 1.0f - 2.0f / (fast_exp(2.0f * size) + 1.0f);
  return size < 0.625f ? small : (x < 0 ? -large : large);
}

// Logistic function 1 / (1 + exp(-x)). On a GPU, float uses the special function units, within 3 + |x| / 2 ulp.
template <class A>
GYR_FUNCTION A sigmoid(A x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<A, float>) {
    float power, s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-1.44269504f * x));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.0f + power));
    return s;
  }
#endif
  return A(1) / (A(1) + fast_exp(-x));
}
template <class A>
GYR_FUNCTION A silu(A x) {
  return x * sigmoid(x);
}
// silu'(x) = sig(x) (1 + x (1 - sig(x)))
template <class A>
GYR_FUNCTION A silu_slope(A x) {
  const A s = sigmoid(x);
  return s * (A(1) + x * (A(1) - s));
}

}  // namespace gyr
