// SPDX-License-Identifier: BSD-3-Clause
// KV cache and attention of one new token per sequence. One launch handles all sequences: each finds its cache row from
// its number of earlier tokens.
#include "kernels/ops/kv_cache.hpp"

#include "kernels/ops/attention.hpp"
#include "kernels/cuda/attention/attention.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T, int N>
GYR_KERNEL remember_kernel(Index held, Global<const std::int32_t> before, Global<const T> fresh, Global<T> cache) {
  each_row(fresh.rows(), [&](Index b) {
    const Index row = b * held + before.load(b) % held;
    each_column<N>(fresh.columns(), [&](Index c) { cache.template store_pack<N>(row, c, fresh.template load_pack<N>(b, c)); });
  });
}

template <class T>
void remember(Device& dev, const Matrix<const T>& fresh, const KeyCache<T>& cache, const TokensBefore& before) {
  const Global<const T> from(fresh);
  const Global<T> to(cache.rows);
  if (const auto run = dev.launch("key_cache", 0, 2.0 * sizeof(T) * double(fresh.rows) * double(fresh.columns)))
    with_packs<T>([&](auto n) { launch(dev, "key_cache", grid_of_rows(from), remember_kernel<T, n>, cache.held, before.there, from, to); }, from, to);
}

// Number of cached keys that the new tokens see, summed over the sequences.
double seen(const TokensBefore& before, Index batch, Index held, CachedRows rows) {
  double n = 0;
  for (Index b = 0; b < batch; ++b) n += double(visible_rows(rows, before.planned(b), held).count());
  return n;
}

}  // namespace

template <class T>
void attention_step(Device& dev, const AttentionShape& shape, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> fresh,
                    const KeyCache<T>& cache, const TokensBefore& before, AttentionState<Acc<T>> state) {
  const Index k_width = shape.num_kv_heads * shape.head_dim, v_width = shape.num_kv_heads * shape.v_head_dim;
  AttentionShape cached = shape, fresh_shape = shape;
  cached.keys = cache.held, fresh_shape.keys = 1;
  const auto sync_with = [&](CachedRows which, Carry carry) {
    Heads heads(cached, Mask());
    heads.before = Global<const std::int32_t>(before.there), heads.cached = which;
    const double pairs = seen(before, shape.batch, cache.held, which) * double(shape.num_heads), elements = double(shape.head_dim + shape.v_head_dim);
    if (const auto run = dev.launch("attention", (2 * elements + (scores.cap > 0 ? 7 : 4)) * pairs,
                                    sizeof(T) * elements * pairs / double(shape.num_heads / shape.num_kv_heads)))
      attend<T>(dev, heads, scores, {}, q, columns(cache.rows, 0, k_width), columns(cache.rows, cache.first_value, v_width), carry == Carry::fresh,
                state);
  };
  if (cache.holds_all) {
    remember<T>(dev, fresh, cache, before);
    return sync_with(CachedRows::up_to_query, Carry::fresh);
  }
  Carry carry = Carry::fresh;
  if (cache.held > 0) sync_with(CachedRows::older, carry), carry = Carry::continued, sync_with(CachedRows::newer, carry);
  gyr::attention<T>(dev, fresh_shape, Mask(), scores, q, columns(fresh, 0, k_width), columns(fresh, cache.first_value, v_width), carry, state);
  if (cache.held > 0) remember<T>(dev, fresh, cache, before);
}

GYR_SCALARS(GYR_ATTENTION_STEP)

}  // namespace gyr::backend
