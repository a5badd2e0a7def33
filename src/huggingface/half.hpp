// SPDX-License-Identifier: BSD-3-Clause
// IEEE half precision (float16: 1 sign bit, 5 exponent bits, 10 fraction bits), converted from and to float. Only files
// use this type; nothing computes in it.
#pragma once

#include <bit>
#include <cstdint>

namespace gyr {

constexpr float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);  // infinity or NaN
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = float(fraction) * 0x1p-24f;  // subnormal or zero, exact
  return sign ? -tiny : tiny;
}

// Rounds to nearest, ties to even. Values that are too large become infinity.
constexpr std::uint16_t float_to_half(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return std::uint16_t(sign | 0x7c00u | 0x200u | (size >> 13 & 1023u));
  if (size >= 0x47800000u) return std::uint16_t(sign | 0x7c00u);  // 65536 and above overflow to infinity
  if (size >= 0x38800000u) {                                      // normal numbers, from 2^-14; a carry out of the fraction increments the exponent
    const std::uint32_t rounded = size + 0xfffu + (size >> 13 & 1u);
    return std::uint16_t(sign | ((rounded >> 13) - (112u << 10)));
  }
  if (size < 0x33000000u) return std::uint16_t(sign);  // below 2^-25: rounds to zero
  const std::uint32_t shift = 126u - (size >> 23), fraction = (size & 0x7fffffu) | 0x800000u;
  const std::uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1), middle = 1u << (shift - 1);
  return std::uint16_t(sign | (kept + (rest > middle || (rest == middle && (kept & 1u)))));
}

}  // namespace gyr
