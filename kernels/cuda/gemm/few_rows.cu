// SPDX-License-Identifier: BSD-3-Clause
// GEMM of a few rows x with a weight matrix (N,K) that is read once, in its storage format. It determines the speed of
// generation (decoding). One warp computes the outputs of one matrix row. The order of summation of an output does not
// depend on the other rows of x.
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/int8_matrix.hpp"
#include "kernels/cuda/gemm/gemm.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

// Weight rows in float or bf16.
template <class W, int N>
struct Stored {
  Global<const W> w;
  GYR_DEVICE Pack<float, N> load(Index r, Index c) const {
    const auto given = w.template load_pack<N>(r, c);
    Pack<float, N> v;
    for (int i = 0; i < N; ++i) v.at[i] = float(given.at[i]);
    return v;
  }
};

// Weight rows in int8 with one scale per block of Int8Matrix::block columns. A pack never crosses a block.
template <int N>
struct Quantized {
  Global<const std::int8_t> w;
  Global<const float> scales;
  GYR_DEVICE Pack<float, N> load(Index r, Index c) const {
    const auto given = w.template load_pack<N>(r, c);
    const float scale = scales.load(r, c / Int8Matrix::block);
    Pack<float, N> v;
    for (int i = 0; i < N; ++i) v.at[i] = scale * float(given.at[i]);
    return v;
  }
};

template <int rows, int N, class W, class T, class S>
GYR_KERNEL few_rows_kernel(W w, Global<const T> x, float alpha, float beta, Global<S> y) {
  each_row(y.columns(), [&](Index n) {
    float sums[rows] = {};
    each_column<N>(x.columns(), [&](Index c) {
      const Pack<float, N> weights = w.load(n, c);
      for (int r = 0; r < rows; ++r) {
        const auto x_values = x.template load_pack<N>(r, c);
        for (int i = 0; i < N; ++i) sums[r] += float(x_values.at[i]) * weights.at[i];
      }
    });
    for (int r = 0; r < rows; ++r) {
      const float sum = warp_sum(sums[r]);
      if (lane() == 0) y.store(r, n, S(alpha * sum + (beta == 0 ? 0.0f : beta * float(y.load(r, n)))));
    }
  });
}

template <int N, class W, class T, class S, int... below>
void launch_few_rows(Device& dev, const W& w, Global<const T> x, float alpha, float beta, Global<S> y, std::integer_sequence<int, below...>) {
  const Grid grid{std::min(ceil_div(y.columns(), usual_warps), most_blocks), usual_threads};
  ((y.rows() == below + 1 ? launch(dev, "few_rows", grid, few_rows_kernel<below + 1, N, W, T, S>, w, x, alpha, beta, y) : void()), ...);
}
constexpr auto counts = std::make_integer_sequence<int, int(few_rows)>();

template <class T>
GYR_KERNEL scale_kernel(Acc<T> by, Global<T> x) {
  each_pack<1>(x, [&](Index r, Index c) { x.store(r, c, by == Acc<T>(0) ? T(Acc<T>(0)) : T(by * Acc<T>(x.load(r, c)))); });
}

}  // namespace

template <class T, class S>
void few_rows_gemm(Device& dev, Matrix<const T> x, Matrix<const T> w, Matrix<S> y, double alpha, double beta) {
  if (dev.dry_run()) return;
  const Global<const T> from(x), matrix(w);
  with_packs<T>(
      [&]<int N>(std::integral_constant<int, N>) {
        launch_few_rows<N>(dev, Stored<T, N>{matrix}, from, float(alpha), float(beta), Global<S>(y), counts);
      },
      from, matrix);
}

template <class T, class S>
void few_rows_gemm(Device& dev, Matrix<const T> x, const Int8Matrix& w, Matrix<S> y, double alpha, double beta) {
  if (dev.dry_run()) return;
  const Global<const T> from(x);
  const Global<const std::int8_t> values(Matrix<const std::int8_t>(w.values, w.rows, w.columns, w.columns));
  const Global<const float> scales(Matrix<const float>(w.scales, w.rows, w.blocks(), w.blocks()));
  with_packs<T>(
      [&]<int N>(std::integral_constant<int, N>) {
        launch_few_rows<N>(dev, Quantized<N>{values, scales}, from, float(alpha), float(beta), Global<S>(y), counts);
      },
      from, values);
}

GYR_FEW_ROWS(float, float)
GYR_FEW_ROWS(bf16, bf16)
GYR_FEW_ROWS(bf16, float)
GYR_INT8_FEW_ROWS(float, float)
GYR_INT8_FEW_ROWS(bf16, bf16)
GYR_INT8_FEW_ROWS(bf16, float)

}  // namespace gyr::backend

namespace gyr::cuda {

template <class T>
void scale(Device& dev, double by, Matrix<T> x) {
  const Global<T> to(x);
  launch(dev, "scale", grid_of<1>(to), backend::scale_kernel<T>, Acc<T>(by), to);
}
template void scale<double>(Device&, double, Matrix<double>);
template void scale<float>(Device&, double, Matrix<float>);
template void scale<bf16>(Device&, double, Matrix<bf16>);

}  // namespace gyr::cuda
