// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/int8_matrix.hpp"

#include <algorithm>

#include "kernels/base/instances.hpp"
#include "kernels/ops/gemm.hpp"

namespace gyr {

namespace {

constexpr Index widened_rows = 512;  // rows of the matrix that are dequantized at a time: enough for the full throughput of a GEMM

}  // namespace

template <class T>
void quantize(Device& dev, Matrix<const T> w, const Int8Matrix& to) {
  ensure(w.rows == to.rows && w.columns == to.columns, "quantize: w ({},{}) and the int8 matrix ({},{}) have different shapes", w.rows, w.columns,
         to.rows, to.columns);
  if (const auto run = dev.launch("quantize", 0, double(w.rows) * double(w.columns) * (sizeof(T) + 1))) backend::quantize<T>(dev, w, to);
}

template <class T, class S>
void linear(Device& dev, Matrix<const T> x, const Int8Matrix& w, Matrix<S> y, double alpha, double beta) {
  ensure(x.columns == w.columns && x.rows == y.rows && w.rows == y.columns, "int8 GEMM: x ({},{}), w ({},{}) and y ({},{}) do not fit", x.rows,
         x.columns, w.rows, w.columns, y.rows, y.columns);
  const char* const kernel = "gemm_int8";
  const double bytes =
      double(w.rows) * double(w.columns + 4 * w.blocks()) + double(sizeof(T)) * x.rows * x.columns + double(sizeof(S)) * y.rows * y.columns;
  const Workspace workspace(dev.scratch, kernel);
  if constexpr (!std::is_same_v<T, double>)
    if (x.rows <= few_rows) {
      const auto run = dev.launch(kernel, 2.0 * x.rows * w.rows * w.columns, bytes);
      return backend::few_rows_gemm<T, S>(dev, x, w, y, alpha, beta);
    }
  const auto wide = dev.scratch.tensor<T>(std::min(widened_rows, w.rows), w.columns);
  for (Index first = 0; first < w.rows; first += widened_rows) {
    const Tensor2<T> some = rows(wide, 0, std::min(widened_rows, w.rows - first));
    if (!dev.dry_run()) backend::widen<T>(dev, w, first, some);
    gemm<T, S>(dev, MatrixOp::none, x, MatrixOp::transpose, Matrix<const T>(Matrix<T>(some)), columns(y, first, Index(some.extent(0))), alpha, beta,
               kernel);
  }
}

GYR_SCALARS(GYR_QUANTIZE)
GYR_INT8_LINEAR(double, double)
GYR_INT8_LINEAR(float, float)
GYR_INT8_LINEAR(bf16, bf16)
GYR_INT8_LINEAR(bf16, float)

}  // namespace gyr
