// SPDX-License-Identifier: BSD-3-Clause
// Codes of 8-bit floating-point values, by integer arithmetic on the bits of a float, so that hosts and GPUs have the same bits whatever their
// rounding mode and compiler flags (Micikevicius et al., "FP8 formats for deep learning", 2022; OCP Microscaling Formats, version 1.0).
//   E4M3   sign, 4 exponent bits (bias 7), 3 mantissa bits: up to 448, no infinity, NaN is 0x7f
//   E5M2   sign, 5 exponent bits (bias 15), 2 mantissa bits: up to 57344, infinity is 0x7c, NaN is 0x7d to 0x7f
//   E8M0   8 exponent bits (bias 127): powers of two from 2^-127 to 2^127, as scales of blocks; NaN is 0xff
// Values are rounded to nearest, ties to even. Values beyond the largest one become the largest one, and so does infinity. NaN becomes 0x7f.
//   scale of a block: 2^e, the largest power of two with 2^e * (largest magnitude) <= largest value of the format
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr::fp8 {

enum class Format { e4m3, e5m2 };

constexpr GYR_FUNCTION int mantissa_bits(Format f) { return f == Format::e4m3 ? 3 : 2; }
constexpr GYR_FUNCTION int bias(Format f) { return f == Format::e4m3 ? 7 : 15; }
constexpr GYR_FUNCTION std::uint32_t largest_code(Format f) { return f == Format::e4m3 ? 0x7e : 0x7b; }
// Exponent of the largest value of both formats, which is 1.75 * 2^exponent.
constexpr GYR_FUNCTION int largest_exponent(Format f) { return f == Format::e4m3 ? 8 : 15; }

inline constexpr std::uint32_t float_infinity = 0x7f800000u, float_one_and_three_quarters = 0x600000u;  // the latter: mantissa of 1.75

// Float 2^e for -126 <= e <= 127.
GYR_FUNCTION float power_of_two(int e) { return __builtin_bit_cast(float, std::uint32_t(e + 127) << 23); }

// The unit of the mantissa at exponent e is 2^(e - mantissa_bits). `quotient` is the magnitude in these units, rounded; below the smallest
// normal exponent the unit stays constant. No step depends on the value by a branch, so that loops vectorise.
GYR_FUNCTION std::uint8_t encode(float x, Format f) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x), magnitude = bits & 0x7fffffffu, exponent = magnitude >> 23;
  const std::uint32_t smallest = std::uint32_t(128 - bias(f)), at = exponent > smallest ? exponent : smallest;  // both with the bias of floats
  const std::uint32_t mantissa = exponent == 0 ? 0 : (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t shift_needed = std::uint32_t(23 - mantissa_bits(f)) + at - exponent, shift = shift_needed < 31 ? shift_needed : 31;
  const std::uint32_t quotient = (mantissa + (1u << (shift - 1)) - 1 + ((mantissa >> shift) & 1u)) >> shift;
  const std::uint32_t rounded = ((at - smallest) << mantissa_bits(f)) + quotient;
  const std::uint32_t code = rounded < largest_code(f) ? rounded : largest_code(f);
  return std::uint8_t((magnitude > float_infinity ? 0x7fu : code) | (bits >> 24 & 0x80u));
}

GYR_FUNCTION float decode(std::uint8_t code, Format f) {
  const int magnitude = code & 0x7f, exponent = magnitude >> mantissa_bits(f), fraction = magnitude & ((1 << mantissa_bits(f)) - 1);
  const int quotient = exponent == 0 ? fraction : fraction + (1 << mantissa_bits(f));
  const float value = float(quotient) * power_of_two((exponent == 0 ? 1 : exponent) - bias(f) - mantissa_bits(f));
  const std::uint32_t special = f == Format::e4m3 ? 0x7fu : 0x7cu;
  const bool infinite = f == Format::e5m2 && magnitude == 0x7c;
  const std::uint32_t bits = std::uint32_t(magnitude) < special ? __builtin_bit_cast(std::uint32_t, value) : infinite ? float_infinity : 0x7fc00000u;
  return __builtin_bit_cast(float, bits | std::uint32_t(code & 0x80) << 24);
}

// Exponent of the scale of a block with this largest magnitude: 0 if it is 0 or not finite. The quotient of two mantissas is compared with 1
// without a division, which a compiler may replace by a multiplication that rounds differently.
GYR_FUNCTION int scale_exponent(float largest, Format f) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, largest) & 0x7fffffffu;
  const int exponent = int(bits >> 23) - 127, e = largest_exponent(f) - exponent - int((bits & 0x7fffffu) > float_one_and_three_quarters);
  return bits == 0 || bits >= float_infinity ? 0 : e < 126 ? e : 126;
}

// E8M0 code of the inverse scale 2^-e, by which decoded values are multiplied.
GYR_FUNCTION std::uint8_t e8m0(int exponent_of_scale) { return std::uint8_t(127 - exponent_of_scale); }
GYR_FUNCTION float decode_e8m0(std::uint8_t code) {
  const std::uint32_t bits = code == 0 ? 0x400000u : code == 0xff ? 0x7fc00000u : std::uint32_t(code) << 23;
  return __builtin_bit_cast(float, bits);
}

// x, divided by the scale after it was rounded: the value that a GEMM reads.
GYR_FUNCTION float rounded(float x, int exponent_of_scale, Format f) {
  return decode(encode(x * power_of_two(exponent_of_scale), f), f) * decode_e8m0(e8m0(exponent_of_scale));
}

}  // namespace gyr::fp8
