// SPDX-License-Identifier: BSD-3-Clause
// Scalar functions of the scan: softplus for the time steps, and differences of cumulative decay sums that keep their
// digits.
#pragma once

#include "kernels/base/math.hpp"

namespace gyr::scan {

// log(1 + e^v), linear for v > 20 as in PyTorch
template <class A>
GYR_FUNCTION A softplus(A v) {
  return v > A(20) ? v : std::log1p(std::exp(v));
}
template <class A>
GYR_FUNCTION A softplus_slope(A v) {
  return v > A(20) ? A(1) : A(1) / (A(1) + std::exp(-v));
}

// a - b of sums that are kept as two values each: s = sum + 2^-24 rest. In a long chunk, neighbouring sums are far
// greater than their difference, which a single float sum would not resolve. The fused multiply-add keeps the compiler,
// which may reorder sums, from adding a rest to its own sum. Double has enough digits without the rest.
constexpr double rest_unit = 0x1p-24;
GYR_FUNCTION float difference(float a, float a_rest, float b, float b_rest) { return std::fma(a_rest - b_rest, float(rest_unit), a - b); }
GYR_FUNCTION double difference(double a, double, double b, double) { return a - b; }

}  // namespace gyr::scan
