// SPDX-License-Identifier: BSD-3-Clause
// Sizes of files and disks for messages, in powers of 1000, as file systems and transformers count them.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>

#include "kernels/base/error.hpp"

namespace gyr {

// "812 bytes", "4.9 MB", "128 GB": one decimal below one hundred, and never 0.0 for a size above 0.
inline std::string byte_text(double bytes) {
  static constexpr const char* units[] = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 999.5) return fmt::format("{:.0f} byte{}", bytes, bytes >= 0.5 && bytes < 1.5 ? "" : "s");
  std::size_t unit = 0;
  for (bytes /= 1000; bytes >= 999.5 && unit + 1 < std::size(units); ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, bytes < 99.95 ? 1 : 0, units[unit]);
}

}  // namespace gyr
