// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels that round matrices to FP8. kernels/ops/fp8/fp8.hpp has the formulas. Adjacent elements of a row belong to adjacent lanes.
#include "kernels/base/instances.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/fp8/fp8.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T>
GYR_DEVICE float larger_magnitude(float most, const Global<const T>& x, Index r, Index c) {
  const float value = float(Acc<T>(x.load(r, c))), size = value < 0 ? -value : value;
  return size > most ? size : most;
}

// One warp per block of x.
template <class T>
GYR_KERNEL block_maxima_kernel(Global<const T> x, Fp8Block block, Global<float> largest) {
  each_row(largest.rows() * largest.columns(), [&](Index unit) {
    const Index i = unit / largest.columns(), j = unit % largest.columns();
    const Index last_row = x.rows() < (i + 1) * block.rows ? x.rows() : (i + 1) * block.rows;
    const Index last_column = x.columns() < (j + 1) * block.columns ? x.columns() : (j + 1) * block.columns;
    float most = 0;
    for (Index r = i * block.rows; r < last_row; ++r)
      for (Index c = j * block.columns + lane(); c < last_column; c += warp_size) most = larger_magnitude(most, x, r, c);
    most = warp_largest(most);
    if (lane() == 0) largest.store(i, j, most);
  });
}

// Blocks of one column: one lane per block, so that the loads of a row are coalesced.
template <class T>
GYR_KERNEL column_maxima_kernel(Global<const T> x, Fp8Block block, Global<float> largest) {
  const Index groups = (x.columns() + warp_size - 1) / warp_size;
  each_row(largest.rows() * groups, [&](Index unit) {
    const Index i = unit / groups, c = unit % groups * warp_size + lane();
    const Index last_row = x.rows() < (i + 1) * block.rows ? x.rows() : (i + 1) * block.rows;
    if (c >= x.columns()) return;
    float most = 0;
    for (Index r = i * block.rows; r < last_row; ++r) most = larger_magnitude(most, x, r, c);
    largest.store(i, c, most);
  });
}

template <class T>
GYR_KERNEL round_kernel(Global<const T> x, fp8::Format format, Fp8Block block, Global<const float> largest, bool codes, Global<T> to) {
  each_row(x.rows(), [&](Index r) {
    each_column<1>(x.columns(), [&](Index c) {
      const int e = fp8::scale_exponent(largest.load(r / block.rows, c / block.columns), format);
      const float value = float(Acc<T>(x.load(r, c)));
      to.store(r, c, T(codes ? float(fp8::encode(value * fp8::power_of_two(e), format)) : fp8::rounded(value, e, format)));
    });
  });
}

Grid grid_of_warps(Index warps) { return {std::min(ceil_div(warps, usual_warps), most_blocks), usual_threads}; }

}  // namespace

template <class T>
void block_maxima(Device& dev, Matrix<const T> x, const Fp8Block& block, Tensor2<float> largest) {
  const Global<const T> from(x);
  const Index rows = largest.extent(0), columns = largest.extent(1);
  if (block.columns == 1)
    launch(dev, "block_maxima", grid_of_warps(rows * ceil_div(columns, Index(warp_size))), column_maxima_kernel<T>, from, block, largest);
  else launch(dev, "block_maxima", grid_of_warps(rows * columns), block_maxima_kernel<T>, from, block, largest);
}

template <class T>
void round_to_fp8(Device& dev, Matrix<const T> x, fp8::Format format, const Fp8Block& block, Tensor2<const float> largest, Fp8Form form,
                  Tensor2<T> to) {
  const Global<const T> from(x);
  launch(dev, "round_to_fp8", grid_of_rows(from), round_kernel<T>, from, format, block, largest, form == Fp8Form::codes, to);
}

GYR_SCALARS(GYR_FP8)

}  // namespace gyr::backend
