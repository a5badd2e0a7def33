// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of RMSNorm of each head (QK norm). kernels/ops/head_norm.hpp has the formulas.
#include "kernels/ops/head_norm.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void head_norm(Device& dev, Matrix<const T> x, Tensor1<const Acc<T>> g, double eps, Matrix<T> y, Matrix<Acc<T>> rstd, double offset) {
  using A = Acc<T>;
  const A base = A(offset);
  const Index heads = rstd.columns, width = g.extent(0);
  for_teams(
      "head_norm", dev, x.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const A* const weight = g.data();
        for (Index h = 0; h < heads; ++h) {
          const T* const from = x.row(r) + h * width;
          T* const to = y.row(r) + h * width;
          const A squares = sum<A>(team, width, [=](Index e, A& s) { s += A(from[e]) * A(from[e]); });
          const A k = A(1 / std::sqrt(double(squares) / double(width) + eps));
          once(team, [&] { rstd.row(r)[h] = k; });
          each(team, width, [=](Index e) { to[e] = T((base + weight[e]) * A(T(A(from[e]) * k))); });
        }
      });
}

template <class T>
void head_norm_backward(Device& dev, Matrix<const T> dy, Matrix<const T> x, Tensor1<const Acc<T>> g, Matrix<const Acc<T>> rstd, Matrix<T> dx,
                        Tensor1<Acc<T>> dg, double offset) {
  using A = Acc<T>;
  const A base = A(offset);
  const Index rows = x.rows, heads = rstd.columns, width = g.extent(0);
  const auto partial = dev.scratch.tensor<A>(ceil_div(rows, block_rows), width);
  if (dev.dry_run()) return;
  for_teams(
      "head_norm_backward", dev, partial.extent(0), KOKKOS_LAMBDA(const Team& team, Index b) {
        const A* const weight = g.data();
        A* const sums = partial.data() + b * width;
        each(team, width, [=](Index e) { sums[e] = 0; });
        for (Index r = b * block_rows; r < least((b + 1) * block_rows, rows); ++r)
          for (Index h = 0; h < heads; ++h) {
            const T *const in = x.row(r) + h * width, *const dout = dy.row(r) + h * width;
            T* const din = dx.row(r) + h * width;
            const A k = rstd.row(r)[h];
            const A mean = sum<A>(team, width, [=](Index e, A& s) { s += (base + weight[e]) * A(dout[e]) * A(in[e]); }) * k / A(width);
            each(team, width, [=](Index e) {
              const A xh = A(in[e]) * k, d = A(dout[e]);
              sums[e] += d * xh;
              din[e] = T(k * ((base + weight[e]) * d - xh * mean));
            });
          }
      });
  if (dg.data()) add_blocks<A>("head_norm_backward", dev, partial, 1, dg);
}

GYR_SCALARS(GYR_HEAD_NORM)

}  // namespace gyr::backend
