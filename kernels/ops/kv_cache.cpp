// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/kv_cache.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

template <class T>
void attention_step(Device& dev, const AttentionShape& s, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> fresh, const KeyCache<T>& cache,
                    const TokensBefore& before, AttentionState<Acc<T>> state) {
  ensure(s.queries == 1 && q.rows == s.batch && fresh.rows == s.batch && fresh.columns == cache.rows.columns && !scores.bias,
         "attention_step: {} sequences with {} queries each, q ({},{}) and new keys and values ({},{}) do not fit a KV cache of {} columns{}",
         s.batch, s.queries, q.rows, q.columns, fresh.rows, fresh.columns, cache.rows.columns, scores.bias ? ", or there is a score bias" : "");
  ensure(cache.rows.rows == s.batch * cache.held && Index(before.there.extent(0)) == s.batch &&
             (before.host.empty() || Index(before.host.size()) == s.batch),
         "attention_step: a KV cache of {} rows, {} per sequence, does not fit {} sequences with {} and {} token counts", cache.rows.rows, cache.held,
         s.batch, before.there.extent(0), before.host.size());
  for (const Index n : before.host)
    ensure(n >= 0 && (!cache.holds_all || n < cache.held), "attention_step: {} earlier tokens leave no room in a KV cache of {} rows per sequence", n,
           cache.held);
  backend::attention_step<T>(dev, s, scores, q, fresh, cache, before, state);
}

GYR_SCALARS(GYR_ATTENTION_STEP)

}  // namespace gyr
