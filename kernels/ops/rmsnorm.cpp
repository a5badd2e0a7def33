// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/rmsnorm.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

template <class T>
void rmsnorm(Device& dev, Tensor2<const T> x, Tensor1<const Acc<T>> g, double eps, Tensor2<T> y, Tensor1<Acc<T>> rstd, double offset) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1);
  ensure(Index(g.extent(0)) == width && Index(y.extent(0)) == rows && Index(y.extent(1)) == width && Index(rstd.extent(0)) == rows,
         "rmsnorm: x ({},{}) does not fit {} weights, y ({},{}) and {} statistics", rows, width, g.extent(0), y.extent(0), y.extent(1),
         rstd.extent(0));
  if (const auto run = dev.launch("rmsnorm", 4.0 * rows * width, (2.0 * sizeof(T) * width + sizeof(A)) * rows))
    backend::rmsnorm<T>(dev, x, g, eps, y, rstd, offset);
}

template <class T>
void rmsnorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Add add,
                      Tensor2<T> dx, Tensor1<Acc<T>> dg, double offset) {
  const Index rows = x.extent(0), width = x.extent(1);
  for (const auto& same : {Tensor2<const T>(dx), dy})
    ensure(Index(same.extent(0)) == rows && Index(same.extent(1)) == width, "rmsnorm_backward: expected shape ({},{}), not ({},{})", rows, width,
           same.extent(0), same.extent(1));
  ensure(Index(g.extent(0)) == width && (!dg.data() || Index(dg.extent(0)) == width) && Index(rstd.extent(0)) == rows,
         "rmsnorm_backward: x ({},{}) does not fit {} weights, {} weight gradients and {} statistics", rows, width, g.extent(0), dg.extent(0),
         rstd.extent(0));
  const Workspace workspace(dev.scratch, "rmsnorm_backward");
  const auto run = dev.launch("rmsnorm_backward", 11.0 * rows * width, sizeof(T) * (add == Add::yes ? 4.0 : 3.0) * rows * width);
  backend::rmsnorm_backward<T>(dev, dy, x, g, rstd, add, dx, dg, offset);
}

GYR_SCALARS(GYR_RMSNORM)

}  // namespace gyr
