// SPDX-License-Identifier: BSD-3-Clause
// Kernel launches that a device has recorded: number and time per kernel and size.
#pragma once

#include <bit>
#include <string_view>

#include "kernels/base/scalar.hpp"
#include "kernels/base/shape_counts.hpp"

namespace gyr {

// Key of the launch counts: the kernel, and FLOPs and bytes of one launch.
struct LaunchShape {
  std::string_view kernel;  // kernel name, a string literal
  double flops, bytes;
  bool operator==(const LaunchShape& other) const { return flops == other.flops && bytes == other.bytes && kernel == other.kernel; }
  std::size_t hash() const { return mixed(mixed(kernel.size(), std::bit_cast<std::uint64_t>(flops)), std::bit_cast<std::uint64_t>(bytes)); }
};
struct LaunchCount {
  Index calls = 0;
  double seconds = 0;
};
using LaunchCounts = ShapeCounts<LaunchShape, LaunchCount>;

}  // namespace gyr
