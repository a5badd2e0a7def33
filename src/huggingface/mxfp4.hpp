// SPDX-License-Identifier: BSD-3-Clause
// Numbers in blocks of 4 bits: MXFP4 of the Open Compute Project's Microscaling Formats, version 1.0. 32 numbers along a row have one scale
// 2^(s - 127), s a byte of which 255 is not-a-number, and each is one of +-{0, 0.5, 1, 1.5, 2, 3, 4, 6} times that, two to a byte, the first in the
// lower half. All of them are exact in bf16, but for what a scale beyond 2^125 lifts out of its range.
#pragma once

#include <array>

#include "kernels/base/scalar.hpp"

namespace gyr::mxfp4 {

inline constexpr Index numbers = 32, bytes = 16;  // of a block
inline constexpr std::uint8_t nan_scale = 255;

using Codes = std::array<std::uint8_t, bytes>;

// to[0..31]; whether all of them are finite.
bool unpack(const std::uint8_t* codes, std::uint8_t scale, bf16* to);

// 32 finite numbers. By the scale `usual` where that says each of them to the bit; otherwise rounded to nearest, ties to even, by the scale of
// section 6.3 of the specification, 2^(floor(log2 of the largest size) - 2), and what is beyond 6 of it becomes 6.
struct Packed {
  Codes codes;
  std::uint8_t scale;
  bool exact;  // no number was changed
};
Packed pack(const double* from, std::uint8_t usual);

}  // namespace gyr::mxfp4
