// SPDX-License-Identifier: BSD-3-Clause
// Random numbers as a function of where they are used: Philox4x32-10 (Salmon et al. 2011) keyed by (seed, stream), counted by the
// logical index of the element. No state: any rank can draw any element, so that layouts do not change numbers.
#pragma once

#include <array>
#include <string_view>

#include "kernels/device.hpp"

namespace gyr {

// The four words of one Philox4x32-10 block.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A stream of numbers named by a seed and a text.
class Stream {
 public:
  Stream(std::uint64_t seed, std::string_view name);
  double uniform(Index i) const;  // [0, 1), 53 bits
  double normal(Index i) const;   // mean 0, standard deviation 1 (Box-Muller)

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t name_;
};

}  // namespace gyr
