// SPDX-License-Identifier: BSD-3-Clause
// Scalar functions of the scan: time steps, and sums of rates of decay that keep their digits.
#pragma once

#include "kernels/base/math.hpp"

namespace gyr::scan {

// log(1 + e^v), linear beyond 20 as PyTorch has it
template <class A>
GYR_FUNCTION A softplus(A v) {
  return v > A(20) ? v : std::log1p(std::exp(v));
}
template <class A>
GYR_FUNCTION A softplus_slope(A v) {
  return v > A(20) ? A(1) : A(1) / (A(1) + std::exp(-v));
}

// a - b of sums that are kept as two numbers each: s = sum + 2^-24 rest. Neighbours in a long chunk have sums far greater than their
// difference, and in float its digits would be those that the sums have not. The multiply-add keeps the compiler, which may reorder
// sums, from adding a rest to its own sum. Double has digits to spare.
constexpr double rest_unit = 0x1p-24;
GYR_FUNCTION float difference(float a, float a_rest, float b, float b_rest) { return std::fma(a_rest - b_rest, float(rest_unit), a - b); }
GYR_FUNCTION double difference(double a, double, double b, double) { return a - b; }

}  // namespace gyr::scan
