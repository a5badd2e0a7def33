// SPDX-License-Identifier: BSD-3-Clause
// SIMD vectors of 16 lanes, in as many registers as they need, for the few loops that compilers do not vectorise well.
#pragma once

#include <cstdint>
#include <cstring>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "kernels/base/scalar.hpp"

// GCC warns that vectors wider than the processor's registers are passed differently. All code that passes them is
// compiled with the same options.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace gyr {

inline constexpr Index vector_lanes = 16;  // lanes of every vector
using Floats = float __attribute__((vector_size(64)));
using Wholes = std::int32_t __attribute__((vector_size(64)));
using Int16Pairs = std::int16_t __attribute__((vector_size(64)));  // two int16 values in each lane

template <class Vector, class S>
inline Vector raw(const S* from) {
  Vector x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

// Loads the next vector_lanes values as floats.
inline Floats load(const float* from) { return raw<Floats>(from); }
inline Floats load(const bf16* from) {
  using Half = std::uint16_t __attribute__((vector_size(32)));
  using Bits = std::uint32_t __attribute__((vector_size(64)));
  return Floats(__builtin_convertvector(raw<Half>(from), Bits) << 16);
}
// Loads the next 2 * vector_lanes values, as pairs.
inline Int16Pairs load_pairs(const std::int16_t* from) { return raw<Int16Pairs>(from); }
inline Int16Pairs load_pairs(const std::int8_t* from) {
  using Bytes = std::int8_t __attribute__((vector_size(32)));
  return __builtin_convertvector(raw<Bytes>(from), Int16Pairs);
}

// For each lane, the sum of the products of its pair in a and its pair in b.
inline Wholes multiply_pairs(const Int16Pairs& a, const Int16Pairs& b) {
#ifdef __AVX512BW__
  return Wholes(_mm512_madd_epi16(__m512i(a), __m512i(b)));
#elif defined(__AVX2__)
  Wholes sums;
  for (int half = 0; half < 2; ++half) {
    const auto part = [&](const Int16Pairs& x) { return raw<__m256i>(reinterpret_cast<const std::int16_t*>(&x) + half * vector_lanes); };
    const __m256i some = _mm256_madd_epi16(part(a), part(b));
    std::memcpy(reinterpret_cast<std::int32_t*>(&sums) + half * vector_lanes / 2, &some, sizeof(some));
  }
  return sums;
#else
  Wholes sums;
  for (Index i = 0; i < vector_lanes; ++i) sums[i] = std::int32_t(a[2 * i]) * b[2 * i] + std::int32_t(a[2 * i + 1]) * b[2 * i + 1];
  return sums;
#endif
}

inline Floats to_floats(const Wholes& x) { return __builtin_convertvector(x, Floats); }

// Sum of all lanes by halving, in the same order in every build.
inline float total(const Floats& all) {
  Floats x = all;
#if __has_builtin(__builtin_shufflevector)
  x += __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  x += __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return x[0];
#else
  for (Index half = vector_lanes / 2; half > 0; half /= 2)
    for (Index i = 0; i < half; ++i) x[i] += x[i + half];
  return x[0];
#endif
}

}  // namespace gyr
