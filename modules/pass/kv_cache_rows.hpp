// SPDX-License-Identifier: BSD-3-Clause
// View of the KV cache for the sequences of a pass, in the form that the attention kernels take.
#pragma once

#include "kernels/ops/kv_cache.hpp"
#include "modules/pass/pass.hpp"

namespace gyr {

// cache: (sequences of the state store, tokens held, channels of K and V)
template <class T>
KeyCache<T> kv_cache(const Pass& a, const Tensor3<T>& cache, Index first_value, bool holds_all) {
  const Tensor3<T> mine = part(cache, a.sequences.first_sequence, a.sequences.batch);
  const Index held = Index(mine.extent(1)), width = Index(mine.extent(2));
  return {Matrix<T>(mine.data(), a.sequences.batch * held, width, width), held, first_value, holds_all};
}

// For a pass with one new token per sequence: its position, and the number of tokens cached before it.
inline TokensBefore tokens_before(const Pass& a) { return {a.sequences.positions, a.sequences.past}; }

}  // namespace gyr
