// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/vision/patches.hpp"

namespace gyr {

template <class T>
void patches(Device& dev, const PixelScale& scale, Tensor1<const std::uint8_t> bytes, Tensor1<const std::int32_t> positions, Index first,
             Tensor2<T> x) {
  const Index rows = x.extent(0), width = x.extent(1);
  ensure(width % image_channels == 0 && Index(bytes.extent(0)) == rows * width && Index(positions.extent(0)) == rows,
         "patches: {} bytes and {} positions for patches of shape ({},{})", bytes.extent(0), positions.extent(0), rows, width);
  const double n = double(rows) * double(width);
  if (const auto run = dev.launch("patches", 2 * n, double(1 + sizeof(T)) * n)) backend::patches<T>(dev, scale, bytes, positions, first, x);
}

GYR_PATCHES(double)
GYR_PATCHES(float)
GYR_PATCHES(bf16)

}  // namespace gyr
