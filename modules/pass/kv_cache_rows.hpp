// SPDX-License-Identifier: BSD-3-Clause
// The keys and values that a state store has of the sequences of a pass, as kernels find their rows.
#pragma once

#include "kernels/ops/kv_cache.hpp"
#include "modules/pass/pass.hpp"

namespace gyr {

// cache: (sequences of the store, held, C)
template <class T>
KeyCache<T> kv_cache(const Pass& a, const Tensor3<T>& cache, Index first_value, bool holds_all) {
  const Tensor3<T> mine = part(cache, a.sequences.first_sequence, a.sequences.batch);
  const Index held = Index(mine.extent(1)), width = Index(mine.extent(2));
  return {Matrix<T>(mine.data(), a.sequences.batch * held, width, width), held, first_value, holds_all};
}

// Of one token of each sequence, which stands behind all that came before.
inline TokensBefore tokens_before(const Pass& a) { return {a.sequences.positions, a.sequences.past}; }

}  // namespace gyr
