// SPDX-License-Identifier: BSD-3-Clause
// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011): four random words as a function
// of a counter and a key, in host code and in kernels.
#pragma once

#include <cstdint>

#include "kernels/base/scalar.hpp"

namespace gyr {

struct PhiloxWords {
  std::uint32_t at[4];
};

struct PhiloxKey {
  std::uint32_t at[2] = {0, 0};
};

inline constexpr int philox_rounds = 10;

// One round (philox_round), and the key of the next round (philox_next).
GYR_FUNCTION void philox_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d, const PhiloxKey& key) {
  const std::uint64_t p = std::uint64_t(0xD2511F53) * a, q = std::uint64_t(0xCD9E8D57) * c;
  const std::uint32_t first = std::uint32_t(q >> 32) ^ b ^ key.at[0], third = std::uint32_t(p >> 32) ^ d ^ key.at[1];
  a = first, b = std::uint32_t(q), c = third, d = std::uint32_t(p);
}
// key increments: golden ratio, sqrt(3) - 1
GYR_FUNCTION PhiloxKey philox_next(const PhiloxKey& key) { return {{key.at[0] + 0x9E3779B9, key.at[1] + 0xBB67AE85}}; }

GYR_FUNCTION PhiloxWords philox(PhiloxWords x, PhiloxKey key) {
  for (int round = 0; round < philox_rounds; ++round, key = philox_next(key)) philox_round(x.at[0], x.at[1], x.at[2], x.at[3], key);
  return x;
}

}  // namespace gyr
