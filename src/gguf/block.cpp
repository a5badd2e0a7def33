// SPDX-License-Identifier: BSD-3-Clause
#include "src/gguf/block.hpp"

#include <algorithm>
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

void put_block(const float* x, std::string& out, const std::string& object) {
  float largest = 0;
  for (Index i = 0; i < block_size; ++i) {
    require(std::isfinite(x[i]), Exit::data, "{}: contains {}, which q8_0 blocks cannot represent; choose --dtype bf16 or f32", object, x[i]);
    largest = std::max(largest, std::abs(x[i]));
  }
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
  }
}

}  // namespace gyr::gguf
