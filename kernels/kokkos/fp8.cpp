// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels that round matrices to FP8. kernels/ops/fp8/fp8.hpp has the formulas.
#include "kernels/ops/fp8/fp8.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

namespace {

template <class T>
KOKKOS_INLINE_FUNCTION float larger_magnitude(float most, T value) {
  const float x = float(Acc<T>(value)), size = x < 0 ? -x : x;
  return size > most ? size : most;
}

// Rounds n elements, whose maxima are `step` floats apart (0: they share one).
template <class T>
KOKKOS_INLINE_FUNCTION void round_elements(const T* from, const float* largest, Index step, Index n, fp8::Format format, bool codes, T* to) {
  if (codes) {
    for (Index c = 0; c < n; ++c)
      to[c] = T(float(fp8::encode(float(Acc<T>(from[c])) * fp8::power_of_two(fp8::scale_exponent(largest[c * step], format)), format)));
    return;
  }
  for (Index c = 0; c < n; ++c) to[c] = T(fp8::rounded(float(Acc<T>(from[c])), fp8::scale_exponent(largest[c * step], format), format));
}

}  // namespace

template <class T>
void block_maxima(Device& dev, Matrix<const T> x, const Fp8Block& block, Tensor2<float> largest) {
  for_rows(
      dev, "block_maxima", Index(largest.extent(0)), KOKKOS_LAMBDA(const Index b) {
        float* const most = &largest(b, 0);
        const Index end = least((b + 1) * block.rows, x.rows), blocks = largest.extent(1);
        for (Index j = 0; j < blocks; ++j) most[j] = 0;
        for (Index r = b * block.rows; r < end; ++r) {
          const T* const row = &x(r, 0);
          if (block.columns == 1) {
            for (Index c = 0; c < x.columns; ++c) most[c] = larger_magnitude(most[c], row[c]);
            continue;
          }
          for (Index j = 0; j < blocks; ++j) {
            float m = most[j];
            const Index last = least((j + 1) * block.columns, x.columns);
            for (Index c = j * block.columns; c < last; ++c) m = larger_magnitude(m, row[c]);
            most[j] = m;
          }
        }
      });
}

template <class T>
void round_to_fp8(Device& dev, Matrix<const T> x, fp8::Format format, const Fp8Block& block, Tensor2<const float> largest, Fp8Form form,
                  Tensor2<T> to) {
  const bool codes = form == Fp8Form::codes;
  for_rows(
      dev, "round_to_fp8", x.rows, KOKKOS_LAMBDA(const Index r) {
        const T* const from = &x(r, 0);
        T* const row = &to(r, 0);
        const float* const most = &largest(r / block.rows, 0);
        if (block.columns == 1) return round_elements(from, most, 1, x.columns, format, codes, row);
        for (Index j = 0, first = 0; first < x.columns; ++j, first += block.columns)
          round_elements(from + first, most + j, 0, least(block.columns, x.columns - first), format, codes, row + first);
      });
}

GYR_SCALARS(GYR_FP8)

}  // namespace gyr::backend
