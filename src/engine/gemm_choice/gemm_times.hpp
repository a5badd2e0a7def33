// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/device/device.hpp"

namespace gyr {

struct GemmTime {
  GemmShape shape;
  Index calls;                  // number of GEMM calls of this shape per step
  std::vector<double> seconds;  // seconds of one call with each of gemm_libraries(), in their order
  std::size_t chosen;           // index in `seconds` of the library that gemm() chooses for this shape

  double flops() const { return 2.0 * double(shape.m) * double(shape.n) * double(shape.k); }
  double by_choice() const { return seconds[chosen]; }
  double least() const { return *std::min_element(seconds.begin(), seconds.end()); }
};

// Times GEMMs of each shape for a few milliseconds, on operands of their own, which stay in cache if they fit. `done`,
// if given, is called after each shape with the number of shapes done.
std::vector<GemmTime> time_gemms(const GemmCounts&, const std::function<void(std::size_t)>& done = {});

}  // namespace gyr
