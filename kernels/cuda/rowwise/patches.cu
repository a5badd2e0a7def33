// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernel of the patches of images (kernels/ops/vision/patches.hpp).
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/vision/patches.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T>
GYR_KERNEL patches_kernel(PixelMap<Acc<T>> map, Global<const std::uint8_t> bytes, Global<const std::int32_t> positions, Index first, Global<T> x) {
  const Index width = x.columns(), pixels = width / image_channels;
  each_row(x.rows(), [&](Index r) {
    const bool empty = Index(positions.load(r)) < first;
    each_column<1>(width, [&](Index c) { x.store(r, c, T(empty ? Acc<T>(0) : map.at(bytes.load(r * width + c), c / pixels))); });
  });
}

}  // namespace

template <class T>
void patches(Device& dev, const PixelScale& scale, Tensor1<const std::uint8_t> bytes, Tensor1<const std::int32_t> positions, Index first,
             Tensor2<T> x) {
  const Global<T> to(x);
  launch(dev, "patches", grid_of_rows(to), patches_kernel<T>, PixelMap<Acc<T>>(scale), Global<const std::uint8_t>(bytes),
         Global<const std::int32_t>(positions), first, to);
}

GYR_PATCHES(double)
GYR_PATCHES(float)
GYR_PATCHES(bf16)

}  // namespace gyr::backend
