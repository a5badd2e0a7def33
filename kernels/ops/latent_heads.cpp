// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/latent_heads.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

// Column counts of the tensors that an expansion reads and writes.
struct Columns {
  Index expanded, shared, q, k, v;
};

void check(const LatentHeads& s, Index half, const Columns& c) {
  ensure(s.rotary == 2 * half && c.expanded == s.heads * s.expanded() && c.shared == s.rotary && c.q == s.heads * s.width() && c.k == c.q &&
             c.v == s.heads * s.values,
         "expand_heads: {} heads with {} non-rotary, {} rotary and {} value channels do not fit a table of {} rotary channels and columns {} (own), "
         "{} (shared), {} (q), {} (k) and {} (v)",
         s.heads, s.non_rotary, s.rotary, s.values, 2 * half, c.expanded, c.shared, c.q, c.k, c.v);
}

double flops(const LatentHeads& s, Index rows) { return 3.5 * double(rows * s.rotary) * double(s.heads + 1); }
double elements(const LatentHeads& s, Index rows) { return double(rows) * double(s.heads * (3 * s.width() + s.expanded() + s.values) + s.rotary); }

}  // namespace

template <class T>
void expand_heads(Device& dev, const LatentHeads& s, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions, Matrix<const T> expanded,
                  Matrix<const T> shared, Matrix<T> q, Matrix<T> k, Matrix<T> v) {
  check(s, table.cosine.extent(1), {expanded.columns, shared.columns, q.columns, k.columns, v.columns});
  if (const auto run = dev.launch("expand_heads", flops(s, q.rows), sizeof(T) * elements(s, q.rows)))
    backend::expand_heads<T>(dev, s, table, positions, expanded, shared, q, k, v);
}

template <class T>
void expand_heads_backward(Device& dev, const LatentHeads& s, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions,
                           Matrix<const Acc<T>> dq, Matrix<const Acc<T>> dk, Matrix<const Acc<T>> dv, Matrix<T> dq_before, Matrix<T> down,
                           Matrix<T> dshared) {
  check(s, table.cosine.extent(1), {down.columns, dshared.columns, dq.columns, dk.columns, dv.columns});
  ensure(dq_before.columns == dq.columns, "expand_heads_backward: dq has {} columns but dq_before has {}", dq.columns, dq_before.columns);
  const double bytes = double(sizeof(Acc<T>)) * elements(s, dq.rows);
  if (const auto run = dev.launch("expand_heads_backward", flops(s, dq.rows) + double(dq.rows * s.heads * s.rotary), bytes))
    backend::expand_heads_backward<T>(dev, s, table, positions, dq, dk, dv, dq_before, down, dshared);
}

GYR_SCALARS(GYR_LATENT_HEADS)

}  // namespace gyr
