// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/gate.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

using backend::NormGroups;

template <class T, class A>
NormGroups checked(const char* kernel, const Matrix<const T>& y, const Matrix<const T>& z, const Tensor2<A>& squares) {
  const Index groups = squares.extent(1);
  ensure(y.rows == z.rows && y.columns == z.columns && Index(squares.extent(0)) == y.rows && groups > 0 && y.columns % groups == 0,
         "{}: y ({},{}), z ({},{}) and the group sums ({},{}) do not fit", kernel, y.rows, y.columns, z.rows, z.columns, squares.extent(0), groups);
  return backend::norm_groups(y, squares);
}

template <class T>
void check_shape(const char* kernel, const NormGroups& s, const Matrix<const T>& x) {
  ensure(x.rows == s.rows && x.columns == s.channels, "{}: expected shape ({},{}), not ({},{})", kernel, s.rows, s.channels, x.rows, x.columns);
}

template <class A>
void check_weights(const char* kernel, const NormGroups& s, const Tensor1<A>& w) {
  ensure(Index(w.extent(0)) == s.channels, "{}: {} channels but {} weights", kernel, s.channels, w.extent(0));
}

}  // namespace

template <class T>
void gate(Device& dev, Matrix<const T> y, Matrix<const T> z, Tensor2<T> out) {
  const Index rows = y.rows, channels = y.columns;
  ensure(z.rows == rows && z.columns == channels && Index(out.extent(0)) == rows && Index(out.extent(1)) == channels,
         "gate: y ({},{}), z ({},{}) and out ({},{}) have different shapes", rows, channels, z.rows, z.columns, out.extent(0), out.extent(1));
  if (const auto run = dev.launch("gate", 5.0 * rows * channels, 3.0 * sizeof(T) * rows * channels)) backend::gate<T>(dev, y, z, out);
}

template <class T>
void gate_backward(Device& dev, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor2<T> dy, Matrix<T> dz) {
  const Index rows = y.rows, channels = y.columns;
  for (const auto& same : {Matrix<const T>(dout), z, Matrix<const T>(dy), Matrix<const T>(dz)})
    ensure(same.rows == rows && same.columns == channels, "gate_backward: expected shape ({},{}), not ({},{})", rows, channels, same.rows,
           same.columns);
  if (const auto run = dev.launch("gate_backward", 11.0 * rows * channels, 5.0 * sizeof(T) * rows * channels))
    backend::gate_backward<T>(dev, dout, y, z, dy, dz);
}

template <class T>
void gated_norm_squares(Device& dev, GateOrder order, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares) {
  const NormGroups s = checked("gated_norm_squares", y, z, squares);
  const bool gated = order == GateOrder::gate_first;
  if (const auto run =
          dev.launch("gated_norm_squares", (gated ? 7.0 : 2.0) * s.rows * s.channels, (gated ? 2.0 : 1.0) * sizeof(T) * s.rows * s.channels))
    backend::gated_norm_squares<T>(dev, order, y, z, squares);
}

template <class T>
void gated_norm(Device& dev, GateOrder order, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares,
                Index width, double eps, Matrix<T> out) {
  const NormGroups s = checked("gated_norm", y, z, squares);
  check_shape<T>("gated_norm", s, Matrix<const T>(out));
  check_weights("gated_norm", s, w);
  const bool gated = order != GateOrder::none;
  if (const auto run = dev.launch("gated_norm", (gated ? 7.0 : 2.0) * s.rows * s.channels, (gated ? 3.0 : 2.0) * sizeof(T) * s.rows * s.channels))
    backend::gated_norm<T>(dev, order, y, z, w, squares, width, eps, out);
}

template <class T>
void gated_norm_dots(Device& dev, GateOrder order, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                     Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> dots, Tensor1<Acc<T>> dw) {
  const NormGroups s = checked("gated_norm_products", y, z, squares);
  checked("gated_norm_products", y, z, dots);
  ensure(dots.extent(1) == squares.extent(1), "gated_norm_products: {} groups in squares but {} in products", squares.extent(1), dots.extent(1));
  check_shape<T>("gated_norm_products", s, dout);
  check_weights("gated_norm_products", s, w);
  if (dw.data()) check_weights("gated_norm_products", s, dw);
  const Workspace workspace(dev.scratch, "gated_norm_products");
  const bool gated = order != GateOrder::none;
  const auto run =
      dev.launch("gated_norm_products", (gated ? 10.0 : 5.0) * s.rows * s.channels, (gated ? 3.0 : 2.0) * sizeof(T) * s.rows * s.channels);
  backend::gated_norm_dots<T>(dev, order, dout, y, z, w, squares, width, eps, dots, dw);
}

template <class T>
void gated_norm_backward(Device& dev, GateOrder order, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> dots, Index width, double eps, Matrix<T> dy, Matrix<T> dz) {
  const NormGroups s = checked("gated_norm_backward", y, z, squares);
  checked("gated_norm_backward", y, z, dots);
  ensure(dots.extent(1) == squares.extent(1), "gated_norm_backward: {} groups in squares but {} in products", squares.extent(1), dots.extent(1));
  for (const auto& same : {dout, Matrix<const T>(dy), Matrix<const T>(dz)}) check_shape<T>("gated_norm_backward", s, same);
  check_weights("gated_norm_backward", s, w);
  const bool gated = order != GateOrder::none;
  if (const auto run =
          dev.launch("gated_norm_backward", (gated ? 18.0 : 6.0) * s.rows * s.channels, (gated ? 5.0 : 3.0) * sizeof(T) * s.rows * s.channels))
    backend::gated_norm_backward<T>(dev, order, dout, y, z, w, squares, dots, width, eps, dy, dz);
}

GYR_SCALARS(GYR_GATE)

}  // namespace gyr
