// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/head_norm.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

template <class T>
void ensure_shapes(Matrix<const T> x, Matrix<const T> y, Index weights, Matrix<const Acc<T>> rstd) {
  ensure(x.columns == weights * rstd.columns && y.columns == x.columns && y.rows == x.rows && rstd.rows == x.rows,
         "head_norm: x ({},{}) and y ({},{}) do not fit {} weights and statistics ({},{})", x.rows, x.columns, y.rows, y.columns, weights, rstd.rows,
         rstd.columns);
}

}  // namespace

template <class T>
void head_norm(Device& dev, Matrix<const T> x, Tensor1<const Acc<T>> g, double eps, Matrix<T> y, Matrix<Acc<T>> rstd, double offset) {
  ensure_shapes<T>(x, y, g.extent(0), rstd);
  const double size = double(x.rows) * double(x.columns);
  if (const auto run = dev.launch("head_norm", 4 * size, 2 * sizeof(T) * size + sizeof(Acc<T>) * double(x.rows) * double(rstd.columns)))
    backend::head_norm<T>(dev, x, g, eps, y, rstd, offset);
}

template <class T>
void head_norm_backward(Device& dev, Matrix<const T> dy, Matrix<const T> x, Tensor1<const Acc<T>> g, Matrix<const Acc<T>> rstd, Matrix<T> dx,
                        Tensor1<Acc<T>> dg, double offset) {
  for (const Matrix<const T>& same : {dy, Matrix<const T>(dx)}) ensure_shapes<T>(x, same, g.extent(0), rstd);
  ensure(!dg.data() || dg.extent(0) == g.extent(0), "head_norm_backward: {} weights but {} weight gradients", g.extent(0), dg.extent(0));
  const Workspace workspace(dev.scratch, "head_norm_backward");
  const double size = double(x.rows) * double(x.columns);
  const auto run = dev.launch("head_norm_backward", 11 * size, 3 * sizeof(T) * size);
  backend::head_norm_backward<T>(dev, dy, x, g, rstd, dx, dg, offset);
}

GYR_SCALARS(GYR_HEAD_NORM)

}  // namespace gyr
