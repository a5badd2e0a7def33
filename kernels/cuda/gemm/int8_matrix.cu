// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of int8 weight matrices: quantization in blocks with one scale each, and conversion back to T.
#include "kernels/ops/int8_matrix.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

Global<std::int8_t> values_of(const Int8Matrix& w) { return Matrix<std::int8_t>(w.values, w.rows, w.columns, w.columns); }
Global<float> scales_of(const Int8Matrix& w) { return Matrix<float>(w.scales, w.rows, w.blocks(), w.blocks()); }

// One warp per row. It processes one block of Int8Matrix::block elements after another, with two elements per lane.
template <class T>
GYR_KERNEL quantize_kernel(Global<const T> w, Global<std::int8_t> values, Global<float> scales) {
  each_row(w.rows(), [&](Index r) {
    for (Index b = 0; b < scales.columns(); ++b) {
      const Index begin = b * Int8Matrix::block, end = begin + Int8Matrix::block < w.columns() ? begin + Int8Matrix::block : w.columns();
      float most = 0, none = 0;  // none: 0, or NaN if an element is not finite, which makes the scale NaN
      for (Index k = begin + lane(); k < end; k += warp_size) {
        const float x = float(w.load(r, k)), size = x < 0 ? -x : x;
        most = size > most ? size : most;
        none += x * 0;
      }
      const float scale = warp_largest(most) / float(Int8Matrix::largest) + warp_sum(none);
      if (lane() == 0) scales.store(r, b, scale);
      for (Index k = begin + lane(); k < end; k += warp_size)
        values.store(r, k, scale > 0 ? std::int8_t(std::rint(float(w.load(r, k)) / scale)) : std::int8_t(0));
    }
  });
}

template <class T>
GYR_KERNEL widen_kernel(Global<const std::int8_t> values, Global<const float> scales, Index first, Global<T> to) {
  each_row(to.rows(), [&](Index r) {
    each_column<1>(to.columns(), [&](Index c) {
      to.store(r, c, T(Acc<T>(scales.load(first + r, c / Int8Matrix::block)) * Acc<T>(values.load(first + r, c))));
    });
  });
}

}  // namespace

template <class T>
void quantize(Device& dev, Matrix<const T> w, const Int8Matrix& to) {
  const Global<const T> from(w);
  launch(dev, "quantize", grid_of_rows(from), quantize_kernel<T>, from, values_of(to), scales_of(to));
}

template <class T>
void widen(Device& dev, const Int8Matrix& w, Index first, Tensor2<T> to) {
  const Global<T> x(to);
  launch(dev, "widen", grid_of_rows(x), widen_kernel<T>, values_of(w), scales_of(w), first, x);
}

GYR_SCALARS(GYR_QUANTIZE)
GYR_SCALARS(GYR_WIDEN)

}  // namespace gyr::backend
