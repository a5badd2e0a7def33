// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of the heads of multi-head latent attention (MLA). kernels/ops/latent_heads.hpp has the formulas.
#include "kernels/ops/latent_heads.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void expand_heads(Device& dev, const LatentHeads& s, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions, Matrix<const T> expanded,
                  Matrix<const T> shared, Matrix<T> q, Matrix<T> k, Matrix<T> v) {
  using A = Acc<T>;
  const auto cosine = table.cosine, sine = table.sine;
  for_rows(
      dev, "expand_heads", q.rows, KOKKOS_LAMBDA(const Index r) {
        const Index half = s.rotary / 2;
        const A *const c = cosine.data() + positions(r) * half, *const d = sine.data() + positions(r) * half;
        const auto rotate = [&](const T* from, T* to) {
          for (Index j = 0; j < half; ++j) {
            const A u1 = A(from[s.first(j)]), u2 = A(from[s.second(j)]);
            to[s.first(j)] = T(u1 * c[j] - u2 * d[j]);
            to[s.second(j)] = T(u2 * c[j] + u1 * d[j]);
          }
        };
        for (Index h = 0; h < s.heads; ++h) {
          const T* const from = expanded.row(r) + h * s.expanded();
          T* const key = k.row(r) + h * s.width();
          T* const value = v.row(r) + h * s.values;
          T* const query = q.row(r) + h * s.width() + s.non_rotary;
          for (Index i = 0; i < s.non_rotary; ++i) key[i] = from[i];
          for (Index i = 0; i < s.values; ++i) value[i] = from[s.non_rotary + i];
          rotate(shared.row(r), key + s.non_rotary);
          rotate(query, query);
        }
      });
}

template <class T>
void expand_heads_backward(Device& dev, const LatentHeads& s, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions,
                           Matrix<const Acc<T>> dq, Matrix<const Acc<T>> dk, Matrix<const Acc<T>> dv, Matrix<T> dq_before, Matrix<T> down,
                           Matrix<T> dshared) {
  using A = Acc<T>;
  const auto cosine = table.cosine, sine = table.sine;
  for_rows(
      dev, "expand_heads_backward", dq.rows, KOKKOS_LAMBDA(const Index r) {
        const Index half = s.rotary / 2;
        const A *const c = cosine.data() + positions(r) * half, *const d = sine.data() + positions(r) * half;
        for (Index h = 0; h < s.heads; ++h) {
          const A *const query = dq.row(r) + h * s.width(), *const key = dk.row(r) + h * s.width(), *const value = dv.row(r) + h * s.values;
          T *const before = dq_before.row(r) + h * s.width(), *const to = down.row(r) + h * s.expanded();
          for (Index i = 0; i < s.non_rotary; ++i) before[i] = T(query[i]), to[i] = T(key[i]);
          for (Index i = 0; i < s.values; ++i) to[s.non_rotary + i] = T(value[i]);
          for (Index j = 0; j < half; ++j) {
            const A u1 = query[s.non_rotary + s.first(j)], u2 = query[s.non_rotary + s.second(j)];
            before[s.non_rotary + s.first(j)] = T(u1 * c[j] + u2 * d[j]);
            before[s.non_rotary + s.second(j)] = T(u2 * c[j] - u1 * d[j]);
          }
        }
        for (Index j = 0; j < half; ++j) {
          A u1 = 0, u2 = 0;
          for (Index h = 0; h < s.heads; ++h) {
            const A* const rotated = dk.row(r) + h * s.width() + s.non_rotary;
            u1 += rotated[s.first(j)], u2 += rotated[s.second(j)];
          }
          dshared.row(r)[s.first(j)] = T(u1 * c[j] + u2 * d[j]);
          dshared.row(r)[s.second(j)] = T(u2 * c[j] - u1 * d[j]);
        }
      });
}

GYR_SCALARS(GYR_LATENT_HEADS)

}  // namespace gyr::backend
