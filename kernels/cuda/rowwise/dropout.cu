// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernel of dropout.
#include "kernels/ops/dropout.hpp"
#include "kernels/cuda/rowwise/dropout.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

// Each lane computes four columns at a time, whose random words are one Philox block.
template <class T>
GYR_KERNEL drop_kernel(DropoutOf dropout, TokenPlaces places, Index first_row, Global<const T> x, Global<T> y) {
  using A = Acc<T>;
  const Draws draws = dropout.draws();
  each_row(y.rows(), [&](Index r) {
    const Index token = places.token(first_row + r);
    const Draws of_row = dropout.of(draws, places.sequence(first_row + r));
    each_column<4>(y.columns(), [&](Index first) {
      const PhiloxWords words = dropout.words(of_row, 0, token, first / 4);
      for (int i = 0; i < 4; ++i)
        if (const Index c = first + i; c < y.columns()) {
          const A factor = dropout.factor<A>(words.at[i]);
          y.store(r, c, T(factor == 0 ? A(0) : A(x.load(r, c)) * factor));
        }
    });
  });
}

}  // namespace

template <class T>
void drop(Device& dev, const Dropout& dropout, const TokenPlaces& places, Index first_row, Tensor2<const T> x, Tensor2<T> y) {
  const Global<T> to(y);
  launch(dev, "dropout", grid_of_rows(to), drop_kernel<T>, DropoutOf(dropout), places, first_row, Global<const T>(x), to);
}

GYR_SCALARS(GYR_DROPOUT)

}  // namespace gyr::backend
