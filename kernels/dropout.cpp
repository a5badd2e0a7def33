// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/dropout.hpp"

#include <cmath>

#include "kernels/backend.hpp"
#include "kernels/instances.hpp"
#include "kernels/random.hpp"

namespace gyr {

Dropout dropout_at(std::uint64_t seed, std::int64_t step, std::string_view place, double p, Index first_sample) {
  const std::uint64_t name = hash_of(place);
  const auto low = [](std::uint64_t x) { return std::uint32_t(x); };
  const auto high = [](std::uint64_t x) { return std::uint32_t(x >> 32); };
  const PhiloxWords mixed = philox({{low(name), high(name), low(std::uint64_t(step)), high(std::uint64_t(step))}}, {{low(seed), high(seed)}});
  Dropout d;
  d.key = {{mixed.at[0], mixed.at[1]}};
  d.limit = std::uint32_t(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
  d.kept = 1 / (1 - double(d.limit) * 0x1p-32);
  d.first_sample = first_sample;
  return d;
}

template <class T>
void drop(Device& dev, const Dropout& dropout, const TokenPlaces& places, Index first_row, Tensor2<const T> x, Tensor2<T> y) {
  const Index rows = x.extent(0), columns = x.extent(1);
  ensure(Index(y.extent(0)) == rows && Index(y.extent(1)) == columns, "dropout of ({},{}) into ({},{})", rows, columns, y.extent(0), y.extent(1));
  if (const auto run = dev.launch("dropout", double(rows) * columns, 2.0 * sizeof(T) * rows * columns))
    backend::drop<T>(dev, dropout, places, first_row, x, y);
}

GYR_SCALARS(GYR_DROPOUT)

}  // namespace gyr
