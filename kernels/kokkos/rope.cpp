// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/rope.hpp"

#include <cmath>

#include "kernels/kokkos/rows.hpp"

namespace gyr {

template <class A>
void rope_table(Device& dev, double rope_theta, const Rotation<A>& table) {
  const auto cosine = table.cosine, sine = table.sine;
  const Index P = cosine.extent(0), half = cosine.extent(1);
  if (dev.dry_run()) return;  // made once, this is no step's work
  for_rows(
      dev, "rope_table", P, KOKKOS_LAMBDA(const Index p) {
        for (Index j = 0; j < half; ++j) {
          const A angle = A(p) * (A(1) / std::pow(A(rope_theta), A(2 * j) / A(2 * half)));
          cosine(p, j) = std::cos(angle);
          sine(p, j) = std::sin(angle);
        }
      });
}

template <class S, class T>
void rope(Device& dev, Rotate turn, Index num_heads, double scale, const Rotation<Acc<T>>& table, Tensor1<const std::int32_t> positions,
          Matrix<const S> x, Matrix<T> y) {
  using A = Acc<T>;
  const auto cosine = table.cosine, sine = table.sine;
  const Index R = x.rows, half = cosine.extent(1);
  ensure(x.columns == 2 * half * num_heads && y.columns == x.columns && y.rows == R && Index(positions.extent(0)) == R,
         "rope of ({},{}) at {} positions into ({},{}) with {} heads of {}", R, x.columns, positions.extent(0), y.rows, y.columns, num_heads,
         2 * half);
  const auto run =
      dev.launch("rope", 7.0 * R * num_heads * half, double(R) * (num_heads * 2 * half * (sizeof(S) + sizeof(T)) + 2 * half * sizeof(A)));
  if (!run) return;
  const A factor = A(scale), sense = A(turn == Rotate::forward ? scale : -scale);
  for_rows(
      dev, "rope", R, KOKKOS_LAMBDA(const Index r) {
        const A *const c = &cosine(positions(r), 0), *const s = &sine(positions(r), 0);
        for (Index h = 0; h < num_heads; ++h) {
          const S* const u = x.row(r) + 2 * half * h;
          T* const v = y.row(r) + 2 * half * h;
#pragma GCC ivdep  // both halves are read before either is written, so u may be v
          for (Index j = 0; j < half; ++j) {
            const A u1 = A(u[j]), u2 = A(u[j + half]), cj = factor * c[j], sj = sense * s[j];
            v[j] = T(u1 * cj - u2 * sj);
            v[j + half] = T(u2 * cj + u1 * sj);
          }
        }
      });
}

template void rope_table<double>(Device&, double, const Rotation<double>&);
template void rope_table<float>(Device&, double, const Rotation<float>&);

#define GYR_ROPE(S, T) \
  template void rope<S, T>(Device&, Rotate, Index, double, const Rotation<Acc<T>>&, Tensor1<const std::int32_t>, Matrix<const S>, Matrix<T>);
GYR_ROPE(double, double)
GYR_ROPE(float, float)
GYR_ROPE(bf16, bf16)
GYR_ROPE(float, bf16)
GYR_ROPE(bf16, float)
#undef GYR_ROPE

}  // namespace gyr
