// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/fp8/fp8.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

constexpr Index rows_at_once = 8;  // rows whose maximum is found first: enough blocks for the threads of a GPU, and few maxima

void check_blocks(const Fp8Block& block, Index rows, Index columns, Tensor2<const float> largest) {
  ensure(Index(largest.extent(0)) == block.rows_of_blocks(rows) && Index(largest.extent(1)) == block.columns_of_blocks(columns),
         "FP8: ({},{}) maxima for a matrix ({},{}) in blocks of ({},{})", largest.extent(0), largest.extent(1), rows, columns, block.rows,
         block.columns);
}

}  // namespace

template <class T>
void block_maxima(Device& dev, Matrix<const T> x, const Fp8Block& block, Tensor2<float> largest) {
  check_blocks(block, x.rows, x.columns, largest);
  const double elements = double(x.rows) * double(x.columns);
  if (const auto run = dev.launch("block_maxima", elements, sizeof(T) * elements + double(sizeof(float)) * double(largest.span())))
    backend::block_maxima<T>(dev, x, block, largest);
}

template <class T>
void matrix_maximum(Device& dev, Matrix<const T> x, Tensor1<float> largest) {
  Scope scope(dev.scratch);
  const Fp8Block first{rows_at_once, x.columns};
  const auto parts = dev.scratch.named("FP8: maxima of rows").tensor<float>(first.rows_of_blocks(x.rows), Index(1));
  block_maxima<T>(dev, x, first, parts);
  block_maxima<float>(dev, Tensor2<const float>(parts), {Index(parts.extent(0)), 1}, Tensor2<float>(largest.data(), 1, 1));
}

template <class T>
void round_to_fp8(Device& dev, Matrix<const T> x, fp8::Format format, const Fp8Block& block, Tensor2<const float> largest, Fp8Form form,
                  Tensor2<T> to) {
  check_blocks(block, x.rows, x.columns, largest);
  ensure(Index(to.extent(0)) == x.rows && Index(to.extent(1)) == x.columns, "FP8: x ({},{}) and its copy ({},{}) do not fit", x.rows, x.columns,
         to.extent(0), to.extent(1));
  const double elements = double(x.rows) * double(x.columns);
  if (const auto run = dev.launch("round_to_fp8", 2 * elements, 2.0 * sizeof(T) * elements))
    backend::round_to_fp8<T>(dev, x, format, block, largest, form, to);
}

#define GYR_MATRIX_MAXIMUM(T) template void matrix_maximum<T>(Device&, Matrix<const T>, Tensor1<float>);
GYR_SCALARS(GYR_FP8)
GYR_SCALARS(GYR_MATRIX_MAXIMUM)

}  // namespace gyr
