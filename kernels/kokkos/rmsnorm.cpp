// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of RMSNorm. kernels/ops/rmsnorm.hpp has the formulas.
#include "kernels/ops/rmsnorm.hpp"
#include "kernels/base/instances.hpp"

#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void rmsnorm(Device& dev, Tensor2<const T> x, Tensor1<const Acc<T>> g, double eps, Tensor2<T> y, Tensor1<Acc<T>> rstd, double offset) {
  using A = Acc<T>;
  const A base = A(offset);
  const Index rows = x.extent(0), width = x.extent(1);
  for_teams(
      "rmsnorm", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T* const from = x.data() + r * width;
        const A* const weight = g.data();
        T* const to = y.data() + r * width;
        const A squares = sum<A>(team, width, [=](Index d, A& s) { s += A(from[d]) * A(from[d]); });
        const A k = A(1 / std::sqrt(double(squares) / double(width) + eps));
        once(team, [&] { rstd.data()[r] = k; });
        each(team, width, [=](Index d) { to[d] = T((base + weight[d]) * A(T(A(from[d]) * k))); });
      });
}

namespace {

// Each row is loaded from memory once, to compute the mean. Later reads hit the cache.
template <Add add, class T>
void backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Tensor2<T> dx,
              Tensor2<Acc<T>> partial, Acc<T> base) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1);
  for_teams(
      "rmsnorm_backward", dev, partial.extent(0), KOKKOS_LAMBDA(const Team& team, Index b) {
        const A* const weight = g.data();
        A* const dg = partial.data() + b * width;
        each(team, width, [=](Index d) { dg[d] = 0; });
        for (Index r = b * block_rows; r < least((b + 1) * block_rows, rows); ++r) {
          const T *const in = x.data() + r * width, *const dout = dy.data() + r * width;
          T* const din = dx.data() + r * width;
          const A k = rstd.data()[r];
          const A product = sum<A>(team, width, [=](Index d, A& s) { s += (base + weight[d]) * A(dout[d]) * A(in[d]); });
          const A mean = product * k / A(width);
          each(team, width, [=](Index d) {
            const A xh = A(in[d]) * k, u = (base + weight[d]) * A(dout[d]);
            dg[d] += A(dout[d]) * xh;
            const A v = k * (u - xh * mean);
            din[d] = T(add == Add::yes ? A(din[d]) + v : v);
          });
        }
      });
}

}  // namespace

template <class T>
void rmsnorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Add add,
                      Tensor2<T> dx, Tensor1<Acc<T>> dg, double offset) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1);
  const auto partial = dev.scratch.tensor<A>(ceil_div(rows, block_rows), width);
  if (dev.dry_run()) return;
  if (add == Add::yes) backward<Add::yes, T>(dev, dy, x, g, rstd, dx, partial, A(offset));
  else backward<Add::no, T>(dev, dy, x, g, rstd, dx, partial, A(offset));
  if (dg.data()) add_blocks<A>("rmsnorm_backward", dev, partial, 1, dg);
}

GYR_SCALARS(GYR_RMSNORM)

}  // namespace gyr::backend
