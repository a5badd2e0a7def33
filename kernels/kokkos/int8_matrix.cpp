// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels that quantize weights to int8 with one scale per block, and convert them back.
#include <cmath>

#include "kernels/base/instances.hpp"
#include "kernels/kokkos/few_rows.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/int8_matrix.hpp"

namespace gyr::backend {

// to (count, K) = rows of the int8 matrix from row `first`, converted to T.
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

template <class T>
void quantize(Device& dev, Matrix<const T> w, const Int8Matrix& to) {
  for_rows(
      dev, "quantize", w.rows, KOKKOS_LAMBDA(const Index r) {
        for (Index b = 0; b < to.blocks(); ++b) {
          const Index begin = b * Int8Matrix::block, end = least(begin + Int8Matrix::block, w.columns);
          float most = 0, none = 0;  // none: 0, or NaN if an element is not finite
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
void few_rows_gemm(Device& dev, Matrix<const T> x, const Int8Matrix& w, Matrix<S> y, double alpha, double beta) {
  few_rows_gemm_of(dev, x, few::Quantized(w), y, alpha, beta);
}

GYR_SCALARS(GYR_QUANTIZE)
GYR_SCALARS(GYR_WIDEN)
GYR_INT8_FEW_ROWS(float, float)
GYR_INT8_FEW_ROWS(bf16, bf16)
GYR_INT8_FEW_ROWS(bf16, float)

}  // namespace gyr::backend
