// SPDX-License-Identifier: BSD-3-Clause
// Converts values read from a file to the requested type; formats shapes for messages.
#pragma once

#include <algorithm>
#include <string>

#include "kernels/base/printable.hpp"
#include "kernels/base/tensor.hpp"

namespace gyr {

// to[i] = from[i], rounded to nearest. Exit::data naming `object` unless the stored type is a floating-point type.
template <class S>
void convert_values(DType type, const void* from, Index count, S* to, const std::string& object) {
  const auto convert = [&](auto* values) {
    using From = std::remove_cvref_t<decltype(*values)>;
    if constexpr (std::is_same_v<From, bf16>) std::transform(values, values + count, to, [](bf16 x) { return S(float(x)); });
    else std::transform(values, values + count, to, [](From x) { return S(x); });
  };
  switch (type) {
    case DType::f64: return convert(static_cast<const double*>(from));
    case DType::f32: return convert(static_cast<const float*>(from));
    case DType::bf16: return convert(static_cast<const bf16*>(from));
    default: fail(Exit::data, "{}: has type {}, but a floating-point type is needed", object, name_of(type));
  }
}

// Converts to double; integer types are allowed as well.
inline void convert_to_double(DType type, const void* from, Index count, double* to) {
  const auto widen = [&](auto* values) { std::transform(values, values + count, to, [](auto x) { return double(x); }); };
  switch (type) {
    case DType::i32: return widen(static_cast<const std::int32_t*>(from));
    case DType::i64: return widen(static_cast<const std::int64_t*>(from));
    case DType::u8: return widen(static_cast<const std::uint8_t*>(from));
    default: convert_values(type, from, count, to, "numbers");
  }
}

inline std::string text_of(const Shape& shape) {
  std::string text;
  for (const Index extent : shape) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace gyr
