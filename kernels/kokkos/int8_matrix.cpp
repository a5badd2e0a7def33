// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/int8_matrix.hpp"

#include <cmath>

#include "kernels/gemm.hpp"
#include "kernels/kokkos/few_rows.hpp"

namespace gyr {

namespace {

constexpr Index widened_rows = 512;  // of a matrix at a time: enough for a product at full rate

// w (count, K) = rows of the matrix from `first` on.
template <class T>
void widen(Device& dev, const Int8Matrix& w, Index first, Tensor2<T> to) {
  const Index K = w.columns;
  for_rows(
      dev, "widen", Index(to.extent(0)), KOKKOS_LAMBDA(const Index r) {
        const std::int8_t* const from = w.values + (first + r) * K;
        const float* const scales = w.scales + (first + r) * w.blocks();
        T* const row = &to(r, 0);
        for (Index b = 0; b < w.blocks(); ++b) {
          const Index begin = b * Int8Matrix::block, end = least(begin + Int8Matrix::block, K);
          for (Index k = begin; k < end; ++k) row[k] = T(Acc<T>(scales[b]) * Acc<T>(from[k]));
        }
      });
}

}  // namespace

template <class T>
void quantize(Device& dev, Matrix<const T> w, const Int8Matrix& to) {
  ensure(w.rows == to.rows && w.columns == to.columns, "({},{}) quantised into ({},{})", w.rows, w.columns, to.rows, to.columns);
  const auto run = dev.launch("quantize", 0, double(w.rows) * double(w.columns) * (sizeof(T) + 1));
  if (!run) return;
  for_rows(
      dev, "quantize", w.rows, KOKKOS_LAMBDA(const Index r) {
        for (Index b = 0; b < to.blocks(); ++b) {
          const Index begin = b * Int8Matrix::block, end = least(begin + Int8Matrix::block, w.columns);
          float most = 0, none = 0;  // the sum is 0, or no number where an element is none
          for (Index k = begin; k < end; ++k) {
            const float x = float(w(r, k)), size = x < 0 ? -x : x;
            most = size > most ? size : most;
            none += x * 0;
          }
          const float scale = most / float(Int8Matrix::largest) + none;
          to.scales[r * to.blocks() + b] = scale;
          for (Index k = begin; k < end; ++k)
            to.values[r * to.columns + k] = scale > 0 ? std::int8_t(std::rint(float(w(r, k)) / scale)) : std::int8_t(0);
        }
      });
}

template <class T, class S>
void linear(Device& dev, Matrix<const T> x, const Int8Matrix& w, Matrix<S> y, double alpha, double beta) {
  ensure(x.columns == w.columns && x.rows == y.rows && w.rows == y.columns, "({},{}) times int8 ({},{})' into ({},{})", x.rows, x.columns, w.rows,
         w.columns, y.rows, y.columns);
  const char* const kernel = "gemm_int8";
  const double bytes =
      double(w.rows) * double(w.columns + 4 * w.blocks()) + double(sizeof(T)) * x.rows * x.columns + double(sizeof(S)) * y.rows * y.columns;
  const Workspace workspace(dev.scratch, kernel);
  if constexpr (!std::is_same_v<T, double>)
    if (x.rows <= few_rows) {
      const auto run = dev.launch(kernel, 2.0 * x.rows * w.rows * w.columns, bytes);
      return few_rows_product(dev, x, few::Quantized(w), y, alpha, beta);
    }
  const auto wide = dev.scratch.tensor<T>(least(widened_rows, w.rows), w.columns);
  for (Index first = 0; first < w.rows; first += widened_rows) {
    const Tensor2<T> some = rows(wide, 0, least(widened_rows, w.rows - first));
    if (!dev.dry_run()) widen(dev, w, first, some);
    gemm<T, S>(dev, MatrixOp::none, x, MatrixOp::transpose, Matrix<const T>(Matrix<T>(some)), columns(y, first, Index(some.extent(0))), alpha, beta,
               kernel);
  }
}

template void quantize<double>(Device&, Matrix<const double>, const Int8Matrix&);
template void quantize<float>(Device&, Matrix<const float>, const Int8Matrix&);
template void quantize<bf16>(Device&, Matrix<const bf16>, const Int8Matrix&);
template void linear<double, double>(Device&, Matrix<const double>, const Int8Matrix&, Matrix<double>, double, double);
template void linear<float, float>(Device&, Matrix<const float>, const Int8Matrix&, Matrix<float>, double, double);
template void linear<bf16, bf16>(Device&, Matrix<const bf16>, const Int8Matrix&, Matrix<bf16>, double, double);
template void linear<bf16, float>(Device&, Matrix<const bf16>, const Int8Matrix&, Matrix<float>, double, double);

}  // namespace gyr
