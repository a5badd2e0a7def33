// SPDX-License-Identifier: BSD-3-Clause
// A decoded picture: RGB with 8 bits per channel.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr::media {

struct Image {
  Index height = 0, width = 0;
  std::vector<std::uint8_t> rgb;  // (height, width, 3), rows from top to bottom

  static Image black(Index height, Index width) { return {height, width, std::vector<std::uint8_t>(std::size_t(height * width * 3), 0)}; }
  const std::uint8_t* row(Index i) const { return rgb.data() + 3 * i * width; }
  std::uint8_t* row(Index i) { return rgb.data() + 3 * i * width; }
};

// Copies `rgba` (height, width, 4) over a white background: (s a + 255 (255 - a)) / 255, rounded, as Pillow does.
Image over_white(Index height, Index width, const std::vector<std::uint8_t>& rgba);
// The rectangle of `height` rows and `width` columns whose first pixel is (top, left). Pixels outside the picture are black.
Image cropped(const Image&, Index top, Index left, Index height, Index width);
// The picture in the orientation that EXIF tag 0x0112 asks for: 2 mirrored, 3 turned by 180 degrees, 4 upside down,
// 5 transposed, 6 turned right, 7 transposed along the other diagonal, 8 turned left. Any other value: unchanged.
Image oriented(Image, int orientation);

}  // namespace gyr::media
