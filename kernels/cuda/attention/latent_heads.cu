// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of multi-head latent attention (MLA): expansion of latent channels to the heads' queries, keys and
// values, with RoPE, and its gradient.
#include "kernels/ops/latent_heads.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

// A pair of channels rotated by an angle (RoPE). Both inputs are read before either result is stored, so that rotation
// can be in place.
template <class A>
struct Rotated {
  A first, second;

  GYR_DEVICE Rotated(A u1, A u2, A cosine, A sine) : first(u1 * cosine - u2 * sine), second(u2 * cosine + u1 * sine) {}
};

template <class T>
GYR_KERNEL expand_heads_kernel(LatentHeads s, Global<const Acc<T>> cosine, Global<const Acc<T>> sine, Global<const std::int32_t> positions,
                               Global<const T> expanded, Global<const T> shared, Global<T> q, Global<T> k, Global<T> v) {
  using A = Acc<T>;
  const Index half = s.rotary / 2;
  each_row(q.rows(), [&](Index r) {
    const Index p = positions.load(r);
    each_column<1>(s.heads * s.non_rotary, [&](Index i) {
      const Index h = i / s.non_rotary, c = i % s.non_rotary;
      k.store(r, h * s.width() + c, expanded.load(r, h * s.expanded() + c));
    });
    each_column<1>(s.heads * s.values, [&](Index i) { v.store(r, i, expanded.load(r, i / s.values * s.expanded() + s.non_rotary + i % s.values)); });
    each_column<1>(s.heads * half, [&](Index i) {
      const Index j = i % half, to = i / half * s.width() + s.non_rotary, first = to + s.first(j), second = to + s.second(j);
      const A c = cosine.load(p, j), d = sine.load(p, j);
      const Rotated<A> query(A(q.load(r, first)), A(q.load(r, second)), c, d);
      const Rotated<A> key(A(shared.load(r, s.first(j))), A(shared.load(r, s.second(j))), c, d);
      q.store(r, first, T(query.first)), q.store(r, second, T(query.second));
      k.store(r, first, T(key.first)), k.store(r, second, T(key.second));
    });
  });
}

template <class T>
GYR_KERNEL expand_heads_backward_kernel(LatentHeads s, Global<const Acc<T>> cosine, Global<const Acc<T>> sine, Global<const std::int32_t> positions,
                                        Global<const Acc<T>> dq, Global<const Acc<T>> dk, Global<const Acc<T>> dv, Global<T> dq_before,
                                        Global<T> down, Global<T> dshared) {
  using A = Acc<T>;
  const Index half = s.rotary / 2;
  each_row(dq.rows(), [&](Index r) {
    const Index p = positions.load(r);
    each_column<1>(s.heads * s.non_rotary, [&](Index i) {
      const Index h = i / s.non_rotary, c = i % s.non_rotary;
      dq_before.store(r, h * s.width() + c, T(dq.load(r, h * s.width() + c)));
      down.store(r, h * s.expanded() + c, T(dk.load(r, h * s.width() + c)));
    });
    each_column<1>(s.heads * s.values, [&](Index i) { down.store(r, i / s.values * s.expanded() + s.non_rotary + i % s.values, T(dv.load(r, i))); });
    each_column<1>(s.heads * half, [&](Index i) {
      const Index j = i % half, at = i / half * s.width() + s.non_rotary, first = at + s.first(j), second = at + s.second(j);
      const Rotated<A> query(dq.load(r, first), dq.load(r, second), cosine.load(p, j), -sine.load(p, j));
      dq_before.store(r, first, T(query.first)), dq_before.store(r, second, T(query.second));
    });
    each_column<1>(half, [&](Index j) {
      A u1 = 0, u2 = 0;
      for (Index h = 0; h < s.heads; ++h) {
        const Index at = h * s.width() + s.non_rotary;
        u1 += dk.load(r, at + s.first(j)), u2 += dk.load(r, at + s.second(j));
      }
      const Rotated<A> key(u1, u2, cosine.load(p, j), -sine.load(p, j));
      dshared.store(r, s.first(j), T(key.first)), dshared.store(r, s.second(j), T(key.second));
    });
  });
}

template <class A>
Global<const A> table_of(const Tensor2<A>& x) {
  return Tensor2<const A>(x);
}

}  // namespace

template <class T>
void expand_heads(Device& dev, const LatentHeads& s, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions, Matrix<const T> expanded,
                  Matrix<const T> shared, Matrix<T> q, Matrix<T> k, Matrix<T> v) {
  const Global<T> to(q);
  launch(dev, "expand_heads", grid_of_rows(to), expand_heads_kernel<T>, s, table_of(table.cosine), table_of(table.sine), positions, expanded, shared,
         to, k, v);
}

template <class T>
void expand_heads_backward(Device& dev, const LatentHeads& s, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions,
                           Matrix<const Acc<T>> dq, Matrix<const Acc<T>> dk, Matrix<const Acc<T>> dv, Matrix<T> dq_before, Matrix<T> down,
                           Matrix<T> dshared) {
  const Global<T> to(dq_before);
  launch(dev, "expand_heads_backward", grid_of_rows(to), expand_heads_backward_kernel<T>, s, table_of(table.cosine), table_of(table.sine), positions, dq,
         dk, dv, to, down, dshared);
}

GYR_SCALARS(GYR_LATENT_HEADS)

}  // namespace gyr::backend
