// SPDX-License-Identifier: BSD-3-Clause
// Kernels as they are announced to a device, and how often.
#pragma once

#include <map>
#include <string_view>

#include "kernels/scalar.hpp"

namespace gyr {

// Flops and bytes of one launch.
struct LaunchShape {
  std::string_view kernel;  // a literal
  double flops, bytes;
  auto operator<=>(const LaunchShape&) const = default;
};
struct LaunchCount {
  Index calls = 0;
  double seconds = 0;
};
using LaunchCounts = std::map<LaunchShape, LaunchCount>;

}  // namespace gyr
