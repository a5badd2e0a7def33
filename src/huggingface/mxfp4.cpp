// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/mxfp4.hpp"

#include <algorithm>
#include <cmath>

namespace gyr::mxfp4 {

namespace {

constexpr std::array<float, 8> sizes{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};  // magnitude by the lower three bits of a code; the fourth bit is the sign
constexpr int bias = 127, largest_exponent = 2;  // exponent bias of the scale byte; exponent of the largest element: 6 = 1.5 * 2^2

// Value of each code for each scale byte.
using Table = std::array<std::array<bf16, 16>, 256>;
const Table& table() {
  static const Table all = [] {
    Table t;
    for (int scale = 0; scale < 256; ++scale)
      for (int code = 0; code < 16; ++code) {
        const float size = scale == nan_scale ? std::nanf("") : std::ldexp(sizes[std::size_t(code & 7)], scale - bias);
        t[std::size_t(scale)][std::size_t(code)] = bf16(code & 8 ? -size : size);
      }
    return t;
  }();
  return all;
}

// Code of the magnitude nearest to `size`; ties go to the even code.
unsigned nearest(double size) {
  return unsigned(size > 0.25) + unsigned(size >= 0.75) + unsigned(size > 1.25) + unsigned(size >= 1.75) + unsigned(size > 2.5) +
         unsigned(size >= 3.5) + unsigned(size > 5);
}

Packed by_scale(const double* from, std::uint8_t scale) {
  Packed p{{}, scale, true};
  const double unit = std::ldexp(1.0, bias - scale);
  for (Index i = 0; i < block_elements; ++i) {
    const double size = std::abs(from[i]) * unit;
    const unsigned code = nearest(size);
    p.exact &= double(sizes[code]) == size;
    p.codes[std::size_t(i / 2)] |= std::uint8_t((code | (std::signbit(from[i]) ? 8u : 0u)) << (i % 2 * 4));
  }
  return p;
}

}  // namespace

bool unpack(const std::uint8_t* codes, std::uint8_t scale, bf16* to) {
  const auto& row = table()[scale];
  for (Index i = 0; i < bytes; ++i) to[2 * i] = row[codes[i] & 15], to[2 * i + 1] = row[codes[i] >> 4];
  return std::all_of(to, to + block_elements, [](bf16 x) { return std::isfinite(float(x)); });
}

Packed pack(const double* from, std::uint8_t usual) {
  if (usual != nan_scale)
    if (const Packed p = by_scale(from, usual); p.exact) return p;
  double largest = 0;
  for (Index i = 0; i < block_elements; ++i) largest = std::max(largest, std::abs(from[i]));
  const int exponent = largest > 0 ? std::ilogb(largest) - largest_exponent : -bias;
  return by_scale(from, std::uint8_t(std::clamp(exponent + bias, 0, 2 * bias)));
}

}  // namespace gyr::mxfp4
