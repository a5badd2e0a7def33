// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/device/device.hpp"

namespace gyr {

struct GemmTime {
  GemmShape shape;
  Index calls;                  // in a step
  std::vector<double> seconds;  // by each of gemm_libraries()
  std::size_t chosen;           // of them, by processor and extents

  double flops() const { return 2.0 * double(shape.m) * double(shape.n) * double(shape.k); }
  double by_choice() const { return seconds[chosen]; }
  double least() const { return *std::min_element(seconds.begin(), seconds.end()); }
};

// Times each of these, a few milliseconds long, on operands of its own that stay in cache where they fit. `done`, if given, is told after each how
// many are done.
std::vector<GemmTime> time_gemms(const GemmCounts&, const std::function<void(std::size_t)>& done = {});

}  // namespace gyr
