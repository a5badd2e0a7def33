// SPDX-License-Identifier: BSD-3-Clause
// Random numbers as a function of where they are used: Philox4x32-10 (philox.hpp) keyed by (seed, stream), counted by the logical index of the
// element. No state: any rank can draw any element, so that layouts do not change numbers.
#pragma once

#include <string_view>

#include "kernels/base/philox.hpp"
#include "kernels/device/device.hpp"

namespace gyr {

// 64 bits of a text: FNV-1a.
std::uint64_t hash_of(std::string_view text);

// A stream of numbers named by a seed and a text.
class Stream {
 public:
  Stream(std::uint64_t seed, std::string_view name);
  double uniform(Index i) const;  // [0, 1), 53 bits
  double normal(Index i) const;   // mean 0, standard deviation 1 (Box-Muller)

 private:
  PhiloxKey key_;
  std::uint64_t name_;
};

}  // namespace gyr
