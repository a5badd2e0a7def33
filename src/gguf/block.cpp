// SPDX-License-Identifier: BSD-3-Clause
#include "src/gguf/block.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/base/scalar.hpp"
#include "src/huggingface/half.hpp"

namespace gyr::gguf {

namespace {

void put_half(float x, std::string& out, const std::string& object) {
  const std::uint16_t half = float_to_half(x);
  require(std::isfinite(half_to_float(half)), Exit::data,
          "{}: {} cannot be written in half precision, whose maximum is 65504; choose --dtype bf16 or f32", object, x);
  out.append(reinterpret_cast<const char*>(&half), sizeof half);
}

// Largest magnitude of the values of a block.
float largest_of(const float* x, Index count, const char* blocks, const std::string& object) {
  float largest = 0;
  for (Index i = 0; i < count; ++i) {
    require(std::isfinite(x[i]), Exit::data, "{}: contains {}, which {} blocks cannot represent; choose --dtype bf16 or f32", object, x[i], blocks);
    largest = std::max(largest, std::abs(x[i]));
  }
  return largest;
}

// Codes of a ternary block plus 1, each 0, 1 or 2, and the scale.
struct TernaryBlock {
  std::array<std::uint8_t, ternary_block_size> code;
  float scale;

  TernaryBlock(const float* x, const std::string& object) : scale(largest_of(x, ternary_block_size, "ternary", object)) {
    const float inverse = scale != 0 ? 1 / scale : 0;
    for (Index i = 0; i < ternary_block_size; ++i) code[std::size_t(i)] = std::uint8_t(std::round(x[i] * inverse) + 1);
  }
};

// Byte m of 32 holds the values m, m + 32, m + 64 and m + 96 of 128, from the lowest bits to the highest.
void put_tq2_0(const TernaryBlock& b, std::string& out, const std::string& object) {
  for (int half = 0; half < 2; ++half)
    for (int m = 0; m < 32; ++m) {
      int byte = 0;
      for (int n = 0; n < 4; ++n) byte |= b.code[std::size_t(128 * half + m + 32 * n)] << (2 * n);
      out += char(byte);
    }
  put_half(b.scale, out, object);
}

// `width` bytes of `digits` ternary digits each, the first one most significant. Digit n of byte m is the value first + m + width n. The
// number v below 3^5 is stored as ceil(256 v / 243), from which a reader finds one digit after the other by multiplications by 3.
void put_digits(const TernaryBlock& b, int first, int width, int digits, std::string& out) {
  for (int m = 0; m < width; ++m) {
    int number = 0;
    for (int n = 0; n < 5; ++n) number = 3 * number + (n < digits ? b.code[std::size_t(first + m + width * n)] : 0);
    out += char((number * 256 + 242) / 243);
  }
}

void put_tq1_0(const TernaryBlock& b, std::string& out, const std::string& object) {
  put_digits(b, 0, 32, 5, out);
  put_digits(b, 160, 16, 5, out);
  put_digits(b, 240, 4, 4, out);
  put_half(b.scale, out, object);
}

void put_block(const float* x, std::string& out, const std::string& object) {
  const float largest = largest_of(x, block_size, "q8_0", object);
  const float scale = largest / 127, inverse = scale != 0 ? 1 / scale : 0;
  put_half(scale, out, object);
  for (Index i = 0; i < block_size; ++i) out += char(std::int8_t(std::round(x[i] * inverse)));
}

}  // namespace

void encode(Type type, const float* x, Index count, std::string& out, const std::string& object) {
  switch (type) {
    case Type::f32: out.append(reinterpret_cast<const char*>(x), std::size_t(count) * sizeof *x); return;
    case Type::f16:
      for (Index i = 0; i < count; ++i) put_half(x[i], out, object);
      return;
    case Type::bf16:
      for (Index i = 0; i < count; ++i) {
        const bf16 narrow(x[i]);
        out.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
      }
      return;
    case Type::q8_0:
      for (Index i = 0; i < count; i += block_size) put_block(x + i, out, object);
      return;
    case Type::tq1_0:
      for (Index i = 0; i < count; i += ternary_block_size) put_tq1_0(TernaryBlock(x + i, object), out, object);
      return;
    case Type::tq2_0:
      for (Index i = 0; i < count; i += ternary_block_size) put_tq2_0(TernaryBlock(x + i, object), out, object);
      return;
  }
}

}  // namespace gyr::gguf
