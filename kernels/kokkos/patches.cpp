// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernel of the patches of images (kernels/ops/vision/patches.hpp).
#include "kernels/ops/vision/patches.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void patches(Device& dev, const PixelScale& scale, Tensor1<const std::uint8_t> bytes, Tensor1<const std::int32_t> positions, Index first,
             Tensor2<T> x) {
  using A = Acc<T>;
  const Index width = x.extent(1), pixels = width / image_channels;
  const PixelMap<A> map(scale);
  for_teams(
      "patches", dev, x.extent(0), KOKKOS_LAMBDA(const Team& team, Index r) {
        const std::uint8_t* const from = bytes.data() + r * width;
        T* const to = x.data() + r * width;
        const bool empty = positions.data()[r] < first;
        each(team, width, [=](Index i) { to[i] = T(empty ? A(0) : map.at(from[i], i / pixels)); });
      });
}

GYR_PATCHES(double)
GYR_PATCHES(float)
GYR_PATCHES(bf16)

}  // namespace gyr::backend
