// SPDX-License-Identifier: BSD-3-Clause
// Sequence by sequence, each with the rows that it has.
#include "kernels/ops/kv_cache.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/ops/elementwise.hpp"

namespace gyr::backend {

namespace {

// One of the sequences.
template <class T>
struct Step {
  Device& dev;
  AttentionShape shape;
  const ScoreRule& scores;
  Matrix<const T> q, fresh;
  Matrix<T> cache;  // its rows
  Index first_value;
  AttentionState<Acc<T>> state;
  Carry carry = Carry::fresh;

  void remember(Index row) { convert<T, T>(dev, fresh, cache.block(row, 1, 0, cache.columns)); }
  // Rows of keys and values, the first of which stand at position first_key; the query at `position`.
  void meet(const Matrix<const T>& kv, Index position, Index first_key, Index window) {
    AttentionShape met = shape;
    met.keys = kv.rows;
    attention<T>(dev, met, {.causal = true, .first_query = position, .first_key = first_key, .window = window}, scores, q,
                 columns(kv, 0, shape.num_kv_heads * shape.head_dim), columns(kv, first_value, shape.num_kv_heads * shape.v_head_dim), carry, state);
    carry = Carry::continued;
  }
  void attend_all(Index before) {
    remember(before);
    meet(cache.block(0, before + 1, 0, cache.columns), before, 0, 0);
  }
  // The older part of a cache that goes round, the newer part and the token's own, which then takes the place of the oldest.
  void attend_circular_cache(Index before) {
    const Index held = cache.rows, newer = held > 0 ? before % held : 0, window = held + 1;
    if (held > 0 && before >= held) meet(cache, before, before - newer - held, window);  // newer rows count as so old that the window hides them
    if (newer > 0) meet(cache.block(0, newer, 0, cache.columns), before, before - newer, window);
    meet(fresh, before, before, window);
    if (held > 0) remember(newer);
  }
};

}  // namespace

template <class T>
void attention_step(Device& dev, const AttentionShape& shape, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> fresh,
                    const KeyCache<T>& cache, const TokensBefore& before, AttentionState<Acc<T>> state) {
  AttentionShape one = shape;
  one.batch = 1;
  for (Index b = 0; b < shape.batch; ++b) {
    Step<T> step{dev,
                 one,
                 scores,
                 q.block(b, 1, 0, q.columns),
                 fresh.block(b, 1, 0, fresh.columns),
                 cache.rows.block(b * cache.held, cache.held, 0, cache.rows.columns),
                 cache.first_value,
                 {rows(state.o, b, 1), rows(state.m, b, 1), rows(state.l, b, 1)}};
    if (cache.holds_all) step.attend_all(before.planned(b));
    else step.attend_circular_cache(before.planned(b));
  }
}

GYR_SCALARS(GYR_ATTENTION_STEP)

}  // namespace gyr::backend
