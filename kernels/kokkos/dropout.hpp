// SPDX-License-Identifier: BSD-3-Clause
// Vectorised dropout of adjacent elements of a row: each SIMD lane computes one Philox block of four random words.
#pragma once

#include "kernels/ops/dropout.hpp"

namespace gyr::backend {

// Applies dropout to x[c], c < n, which is element first + c of a row: x[c] becomes zero or is multiplied by d.kept. draws: those
// of the row's sequence.
template <class A>
KOKKOS_INLINE_FUNCTION void drop_columns(const Dropout& d, const Draws& draws, Index head, Index row, Index first, Index n, A* x) {
  constexpr Index lanes = 16, width = 4 * lanes;
  const A kept = A(d.kept);
  for (Index block = first / 4; 4 * block < first + n; block += lanes) {
    std::uint32_t at[4][lanes], words[width];
    const PhiloxWords counter = d.counter(draws, head, row, block);
    for (Index i = 0; i < lanes; ++i)
      at[0][i] = counter.at[0] + std::uint32_t(i), at[1][i] = counter.at[1], at[2][i] = counter.at[2], at[3][i] = counter.at[3];
    PhiloxKey key = draws.key;
    for (int round = 0; round < philox_rounds; ++round, key = philox_next(key))
      for (Index i = 0; i < lanes; ++i) philox_round(at[0][i], at[1][i], at[2][i], at[3][i], key);
    for (Index i = 0; i < lanes; ++i)
      for (Index w = 0; w < 4; ++w) words[4 * i + w] = at[w][i];
    const Index begin = first > 4 * block ? first : 4 * block, end = first + n < 4 * block + width ? first + n : 4 * block + width;
    for (Index c = begin; c < end; ++c) x[c - first] = words[c - 4 * block] < d.limit ? A(0) : x[c - first] * kept;
  }
}

}  // namespace gyr::backend
