// SPDX-License-Identifier: BSD-3-Clause
// Patches of images, the rows that a vision tower reads.   R rows, n = p^2 pixels of a patch
//   x(r, c n + i) = (byte(r, c n + i) - 255 mean(c)) / (255 std(c)), channel c of pixel i
// Rows at a position below `first` have no pixels, and their values are 0. Such a row is that of a class embedding.
#pragma once

#include <array>

#include "kernels/device/device.hpp"

namespace gyr {

inline constexpr Index image_channels = 3;

// Mean and standard deviation of each channel, of pixels in [0, 1].
struct PixelScale {
  std::array<double, image_channels> mean, std;
  bool operator==(const PixelScale&) const = default;
};

template <class T>
void patches(Device&, const PixelScale&, Tensor1<const std::uint8_t> bytes /*(R 3n)*/, Tensor1<const std::int32_t> positions /*(R)*/, Index first,
             Tensor2<T> x /*(R,3n)*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

// x = (byte - offset(c)) factor(c)
template <class A>
struct PixelMap {
  A offset[image_channels], factor[image_channels];

  explicit PixelMap(const PixelScale& s) {
    for (Index c = 0; c < image_channels; ++c) offset[c] = A(255 * s.mean[std::size_t(c)]), factor[c] = A(1 / (255 * s.std[std::size_t(c)]));
  }
  GYR_FUNCTION A at(std::uint8_t byte, Index channel) const { return (A(byte) - offset[channel]) * factor[channel]; }
};

template <class T>
void patches(Device&, const PixelScale&, Tensor1<const std::uint8_t> bytes, Tensor1<const std::int32_t> positions, Index first, Tensor2<T> x);

}  // namespace backend

// Explicit instantiation for one scalar type, in the namespace in which the macro is used.
#define GYR_PATCHES(T) \
  template void patches<T>(Device&, const PixelScale&, Tensor1<const std::uint8_t>, Tensor1<const std::int32_t>, Index, Tensor2<T>);

}  // namespace gyr
