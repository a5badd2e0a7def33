// SPDX-License-Identifier: BSD-3-Clause
// Counter-based random numbers: Philox4x32-10 (philox.hpp) keyed by the seed, with the stream's name and the logical
// index of the element as counter. There is no state: any rank can draw any element, so that layouts do not change the
// values.
#pragma once

#include <string_view>

#include "kernels/base/philox.hpp"
#include "kernels/device/device.hpp"

namespace gyr {

// 64-bit hash of a text: FNV-1a.
std::uint64_t hash_of(std::string_view text);

// A stream of random numbers, named by a seed and a text.
class Stream {
 public:
  Stream(std::uint64_t seed, std::string_view name);
  double uniform(Index i) const;  // uniform in [0, 1), 53 bits
  double normal(Index i) const;   // normal with mean 0 and standard deviation 1 (Box-Muller)

 private:
  PhiloxKey key_;
  std::uint64_t name_;
};

}  // namespace gyr
