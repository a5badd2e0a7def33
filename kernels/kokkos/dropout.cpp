// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernel of dropout over the rows of a tensor.
#include "kernels/kokkos/dropout.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/dropout.hpp"

namespace gyr::backend {

template <class T>
void drop(Device& dev, const Dropout& dropout, const TokenPlaces& places, Index first_row, Tensor2<const T> x, Tensor2<T> y) {
  using A = Acc<T>;
  constexpr Index width = 256;  // columns that are processed at a time
  const Index columns = x.extent(1);
  for_rows(
      dev, "dropout", x.extent(0), KOKKOS_LAMBDA(const Index r) {
        const T* const from = x.data() + r * columns;
        T* const to = y.data() + r * columns;
        const Index sequence = places.sequence(first_row + r), token = places.token(first_row + r);
        const Draws draws = dropout.of(dropout.at(*dropout.now), sequence);
        for (Index first = 0; first < columns; first += width) {
          const Index n = least(width, columns - first);
          A part[width];
          for (Index c = 0; c < n; ++c) part[c] = A(from[first + c]);
          drop_columns(dropout, draws, 0, token, first, n, part);
          for (Index c = 0; c < n; ++c) to[first + c] = T(part[c]);
        }
      });
}

GYR_SCALARS(GYR_DROPOUT)

}  // namespace gyr::backend
