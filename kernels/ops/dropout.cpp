// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/dropout.hpp"

#include <cmath>

#include "kernels/base/instances.hpp"
#include "kernels/device/random.hpp"

namespace gyr {

Dropout dropout_at(std::uint64_t seed, std::string_view place, double p, const DrawnAt* now) {
  Dropout d;
  d.seed = seed, d.place = hash_of(place), d.now = now;
  d.limit = std::uint32_t(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
  d.kept = 1 / (1 - double(d.limit) * 0x1p-32);
  return d;
}

template <class T>
void drop(Device& dev, const Dropout& dropout, const TokenPlaces& places, Index first_row, Tensor2<const T> x, Tensor2<T> y) {
  const Index rows = x.extent(0), columns = x.extent(1);
  ensure(Index(y.extent(0)) == rows && Index(y.extent(1)) == columns, "dropout: x ({},{}) and y ({},{}) have different shapes", rows, columns,
         y.extent(0), y.extent(1));
  if (const auto run = dev.launch("dropout", double(rows) * columns, 2.0 * sizeof(T) * rows * columns))
    backend::drop<T>(dev, dropout, places, first_row, x, y);
}

GYR_SCALARS(GYR_DROPOUT)

}  // namespace gyr
