// SPDX-License-Identifier: BSD-3-Clause
// Attention of one new token per sequence over the KV cache. Sequences are processed one by one, each with its own
// number of cached rows.
#include "kernels/ops/kv_cache.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/ops/elementwise.hpp"

namespace gyr::backend {

namespace {

// Attention step of one sequence.
template <class T>
struct Step {
  Device& dev;
  AttentionShape shape;
  const ScoreRule& scores;
  Matrix<const T> q, fresh;
  Matrix<T> cache;  // this sequence's rows of the KV cache
  Index first_value;
  AttentionState<Acc<T>> state;
  Carry carry = Carry::fresh;

  void remember(Index row) { gyr::convert<T, T>(dev, fresh, cache.block(row, 1, 0, cache.columns)); }
  // Attends to the rows kv of keys and values. first_key: position of the first row. position: position of the query.
  void attend(const Matrix<const T>& kv, Index position, Index first_key, Index window) {
    AttentionShape met = shape;
    met.keys = kv.rows;
    gyr::attention<T>(dev, met, {.causal = true, .first_query = position, .first_key = first_key, .window = window}, scores, q,
                      columns(kv, 0, shape.num_kv_heads * shape.head_dim), columns(kv, first_value, shape.num_kv_heads * shape.v_head_dim), carry,
                      state);
    carry = Carry::continued;
  }
  void attend_all(Index before) {
    remember(before);
    attend(cache.block(0, before + 1, 0, cache.columns), before, 0, 0);
  }
  // For a circular cache of the last tokens: attends to the older part, the newer part and the token itself. The token
  // then replaces the oldest one.
  void attend_circular_cache(Index before) {
    const Index held = cache.rows, newer = held > 0 ? before % held : 0, window = held + 1;
    if (held > 0 && before >= held)
      attend(cache, before, before - newer - held, window);  // newer rows get positions so old that the window masks them
    if (newer > 0) attend(cache.block(0, newer, 0, cache.columns), before, before - newer, window);
    attend(fresh, before, before, window);
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
