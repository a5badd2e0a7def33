// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of LayerNorm. kernels/ops/layernorm.hpp has the formulas.
#include "kernels/ops/layernorm.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void layernorm(Device& dev, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> b, double eps, Tensor2<T> y, Tensor1<Acc<T>> mean,
               Tensor1<Acc<T>> rstd) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1);
  for_teams(
      "layernorm", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T* const from = x.data() + r * width;
        const A *const weight = g.data(), *const bias = b.data();
        T* const to = y.data() + r * width;
        const A centre = sum<A>(team, width, [=](Index d, A& s) { s += A(from[d]); }) / A(width);
        const A squares = sum<A>(team, width, [=](Index d, A& s) { s += (A(from[d]) - centre) * (A(from[d]) - centre); });
        const A k = A(1 / std::sqrt(double(squares) / double(width) + eps));
        once(team, [&] { mean.data()[r] = centre, rstd.data()[r] = k; });
        if (bias) each(team, width, [=](Index d) { to[d] = T(weight[d] * ((A(from[d]) - centre) * k) + bias[d]); });
        else each(team, width, [=](Index d) { to[d] = T(weight[d] * ((A(from[d]) - centre) * k)); });
      });
}

namespace {

// Each row is loaded from memory once, to compute the means. Later reads hit the cache. partial (2 blocks,D):
// contributions to dg, then those to db.
template <Add add, class T>
void backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean, Tensor1<const Acc<T>> rstd,
              Tensor2<T> dx, Tensor2<Acc<T>> partial) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1), blocks = partial.extent(0) / 2;
  for_teams(
      "layernorm_backward", dev, blocks, KOKKOS_LAMBDA(const Team& team, Index b) {
        const A* const weight = g.data();
        A *const dg = partial.data() + b * width, *const db = dg + blocks * width;
        each(team, width, [=](Index d) { dg[d] = db[d] = 0; });
        for (Index r = b * block_rows; r < least((b + 1) * block_rows, rows); ++r) {
          const T *const in = x.data() + r * width, *const dout = dy.data() + r * width;
          T* const din = dx.data() + r * width;
          const A centre = mean.data()[r], k = rstd.data()[r];
          const A level = sum<A>(team, width, [=](Index d, A& s) { s += weight[d] * A(dout[d]); }) / A(width);
          const A along = sum<A>(team, width, [=](Index d, A& s) { s += weight[d] * A(dout[d]) * ((A(in[d]) - centre) * k); }) / A(width);
          each(team, width, [=](Index d) {
            const A xh = (A(in[d]) - centre) * k, dyd = A(dout[d]);
            dg[d] += dyd * xh;
            db[d] += dyd;
            const A v = k * (weight[d] * dyd - level - xh * along);
            din[d] = T(add == Add::yes ? A(din[d]) + v : v);
          });
        }
      });
}

}  // namespace

template <class T>
void layernorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean,
                        Tensor1<const Acc<T>> rstd, Add add, Tensor2<T> dx, Tensor1<Acc<T>> dg, Tensor1<Acc<T>> db) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1), blocks = ceil_div(rows, block_rows);
  const auto partial = dev.scratch.tensor<A>(2 * blocks, width);
  if (dev.dry_run()) return;
  if (add == Add::yes) backward<Add::yes, T>(dev, dy, x, g, mean, rstd, dx, partial);
  else backward<Add::no, T>(dev, dy, x, g, mean, rstd, dx, partial);
  if (dg.data()) add_blocks<A>("layernorm_backward", dev, gyr::rows(partial, 0, blocks), 1, dg);
  if (db.data()) add_blocks<A>("layernorm_backward", dev, gyr::rows(partial, blocks, blocks), 1, db);
}

GYR_SCALARS(GYR_LAYERNORM)

}  // namespace gyr::backend
