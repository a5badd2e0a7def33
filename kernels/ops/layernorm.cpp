// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/layernorm.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

template <class V>
void ensure_extent(const V& v, Index extent, const char* what) {
  ensure(Index(v.extent(0)) == extent, "layernorm: {} {}, expected {}", v.extent(0), what, extent);
}
template <class T>
void ensure_shape(Tensor2<const T> x, Index rows, Index width) {
  ensure(Index(x.extent(0)) == rows && Index(x.extent(1)) == width, "layernorm: expected shape ({},{}), not ({},{})", rows, width, x.extent(0),
         x.extent(1));
}

}  // namespace

template <class T>
void layernorm(Device& dev, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> b, double eps, Tensor2<T> y, Tensor1<Acc<T>> mean,
               Tensor1<Acc<T>> rstd) {
  const Index rows = x.extent(0), width = x.extent(1);
  ensure_shape<T>(y, rows, width);
  ensure_extent(g, width, "weights"), ensure_extent(b, b.data() ? width : 0, "biases"), ensure_extent(mean, rows, "means"),
      ensure_extent(rstd, rows, "statistics");
  if (const auto run = dev.launch("layernorm", 8.0 * rows * width, (2.0 * sizeof(T) * width + 2 * sizeof(Acc<T>)) * rows))
    backend::layernorm<T>(dev, x, g, b, eps, y, mean, rstd);
}

template <class T>
void layernorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean,
                        Tensor1<const Acc<T>> rstd, Add add, Tensor2<T> dx, Tensor1<Acc<T>> dg, Tensor1<Acc<T>> db) {
  const Index rows = x.extent(0), width = x.extent(1);
  for (const auto& same : {Tensor2<const T>(dx), dy}) ensure_shape<T>(same, rows, width);
  ensure_extent(g, width, "weights"), ensure_extent(mean, rows, "means"), ensure_extent(rstd, rows, "statistics");
  for (const auto& sums : {dg, db})
    if (sums.data()) ensure_extent(sums, width, "gradients of weights");
  const Workspace workspace(dev.scratch, "layernorm_backward");
  const auto run = dev.launch("layernorm_backward", 15.0 * rows * width, sizeof(T) * (add == Add::yes ? 4.0 : 3.0) * rows * width);
  backend::layernorm_backward<T>(dev, dy, x, g, mean, rstd, add, dx, dg, db);
}

GYR_SCALARS(GYR_LAYERNORM)

}  // namespace gyr
