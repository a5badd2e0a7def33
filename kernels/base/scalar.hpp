// SPDX-License-Identifier: BSD-3-Clause
// Scalar types: Index, bf16, and the type in which each scalar is accumulated.
#pragma once

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>
#include <string_view>

// GYR_FUNCTION marks functions that host and device code call. nvcc is used with a Kokkos without CUDA, whose macro
// would omit __device__.
#if defined(__CUDACC__)
#define GYR_FUNCTION __host__ __device__ inline
#else
#define GYR_FUNCTION KOKKOS_INLINE_FUNCTION
#endif

namespace gyr {

using Index = std::int64_t;  // 64-bit: batch * tokens * vocabulary can exceed 2^31

// bfloat16, two bytes: the upper half of a float, rounded to nearest even. (Kokkos::bhalf_t is a 4-byte float on hosts.)
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  GYR_FUNCTION bf16(float x) {
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    const auto u = float_bits(x);
    const std::uint32_t rounded = x != x ? u | 0x400000u : u + 0x7fffu + ((u >> 16) & 1u);  // NaN stays NaN, and becomes a quiet one
    bits = std::uint16_t(rounded >> 16);
#endif
  }
  GYR_FUNCTION bf16(double x) : bf16(float(x)) {}
  GYR_FUNCTION operator float() const {
    const std::uint32_t u = std::uint32_t(bits) << 16;
    return __builtin_bit_cast(float, u);
  }

 private:
  GYR_FUNCTION static std::uint32_t float_bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
};
static_assert(sizeof(bf16) == 2);

// Acc<T>: type of sums, statistics, gradients and master weights of tensors of T.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<bf16> {
  using type = float;
};
template <class T>
using Acc = typename Accumulator<T>::type;

enum class DType { f64, f32, bf16, i32, i64, u8 };

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::u8;
}

// Type of sums, statistics and gradients of tensors of `type`: Acc at run time.
constexpr DType accumulator_of(DType type) { return type == DType::bf16 ? DType::f32 : type; }

constexpr Index size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f64: return "float64";
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u8: return "uint8";
  }
  return "";
}

}  // namespace gyr
