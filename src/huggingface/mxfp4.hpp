// SPDX-License-Identifier: BSD-3-Clause
// MXFP4: 4-bit elements in blocks of 32, after the Open Compute Project's Microscaling Formats, version 1.0. A block is
// 32 consecutive elements of a row with one scale 2^(s - 127), where the byte s = 255 means NaN. Each element is +-{0,
// 0.5, 1, 1.5, 2, 3, 4, 6} times the scale. A byte holds two elements, the first in the lower 4 bits. All values are
// exact in bf16, except those that overflow with a scale above 2^125.
#pragma once

#include <array>

#include "kernels/base/scalar.hpp"

namespace gyr::mxfp4 {

inline constexpr Index block_elements = 32, bytes = 16;  // elements of a block, and bytes of their codes
inline constexpr std::uint8_t nan_scale = 255;

using Codes = std::array<std::uint8_t, bytes>;

// Unpacks a block into to[0..31]. Returns true if all values are finite.
bool unpack(const std::uint8_t* codes, std::uint8_t scale, bf16* to);

// Packs 32 finite values. The scale byte `usual` is used if it represents all of them exactly. Otherwise the scale is
// that of section 6.3 of the specification, 2^(floor(log2(max |x|)) - 2). Elements are then rounded to nearest, ties to
// even, and limited to +-6 times the scale.
struct Packed {
  Codes codes;
  std::uint8_t scale;
  bool exact;  // true if every value is represented exactly
};
Packed pack(const double* from, std::uint8_t usual);

}  // namespace gyr::mxfp4
