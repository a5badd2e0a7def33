// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/rope.hpp"

#include <cmath>

#include "kernels/kokkos/rows.hpp"

namespace gyr {

template <class A>
void rope_table(Device& dev, Tensor1<const std::int32_t> positions, double rope_theta, Tensor2<A> cosine, Tensor2<A> sine) {
  const Index R = positions.extent(0), half = cosine.extent(1);
  const auto run = dev.launch("rope_table", 3.0 * R * half, 2.0 * sizeof(A) * R * half);
  const Workspace workspace(dev.scratch, "rope_table");
  const auto frequency = dev.scratch.tensor<A>(half);
  if (!run) return;
  for_rows(
      dev, "rope_frequency", half, KOKKOS_LAMBDA(const Index j) { frequency(j) = A(1) / std::pow(A(rope_theta), A(2 * j) / A(2 * half)); });
  for_rows(
      dev, "rope_table", R, KOKKOS_LAMBDA(const Index r) {
        for (Index j = 0; j < half; ++j) {
          const A angle = A(positions(r)) * frequency(j);
          cosine(r, j) = std::cos(angle);
          sine(r, j) = std::sin(angle);
        }
      });
}

template <class S, class T>
void rope(Device& dev, Turn turn, Index num_heads, double scale, Tensor2<const Acc<T>> cosine, Tensor2<const Acc<T>> sine, Matrix<const S> x,
          Matrix<T> y) {
  using A = Acc<T>;
  const Index R = x.rows, half = cosine.extent(1);
  ensure(x.columns == 2 * half * num_heads && y.columns == x.columns && y.rows == R && Index(cosine.extent(0)) == R,
         "rope of ({},{}) into ({},{}) with {} heads and a table of ({},{})", R, x.columns, y.rows, y.columns, num_heads, cosine.extent(0), half);
  const auto run =
      dev.launch("rope", 7.0 * R * num_heads * half, double(R) * (num_heads * 2 * half * (sizeof(S) + sizeof(T)) + 2 * half * sizeof(A)));
  if (!run) return;
  const A factor = A(scale), sense = A(turn == Turn::forward ? scale : -scale);
  for_rows(
      dev, "rope", R, KOKKOS_LAMBDA(const Index r) {
        const A *const c = &cosine(r, 0), *const s = &sine(r, 0);
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

template void rope_table<double>(Device&, Tensor1<const std::int32_t>, double, Tensor2<double>, Tensor2<double>);
template void rope_table<float>(Device&, Tensor1<const std::int32_t>, double, Tensor2<float>, Tensor2<float>);

#define GYR_ROPE(S, T) \
  template void rope<S, T>(Device&, Turn, Index, double, Tensor2<const Acc<T>>, Tensor2<const Acc<T>>, Matrix<const S>, Matrix<T>);
GYR_ROPE(double, double)
GYR_ROPE(float, float)
GYR_ROPE(bf16, bf16)
GYR_ROPE(float, bf16)
GYR_ROPE(bf16, float)
#undef GYR_ROPE

}  // namespace gyr
