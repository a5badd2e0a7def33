// SPDX-License-Identifier: BSD-3-Clause
#include "src/media/image/image.hpp"

#include <algorithm>

namespace gyr::media {

Image over_white(Index height, Index width, const std::vector<std::uint8_t>& rgba) {
  Image image = Image::black(height, width);
  for (std::size_t p = 0; p < std::size_t(height * width); ++p) {
    const unsigned alpha = rgba[4 * p + 3];
    for (std::size_t c = 0; c < 3; ++c) image.rgb[3 * p + c] = std::uint8_t((rgba[4 * p + c] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
  return image;
}

Image cropped(const Image& image, Index top, Index left, Index height, Index width) {
  Image result = Image::black(height, width);
  const Index first = std::max<Index>(0, left), last = std::min(image.width, left + width);
  if (first >= last) return result;
  for (Index i = std::max<Index>(0, -top); i < height && top + i < image.height; ++i)
    std::copy(image.row(top + i) + 3 * first, image.row(top + i) + 3 * last, result.row(i) + 3 * (first - left));
  return result;
}

Image oriented(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool transposes = orientation >= 5;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Image result = transposes ? Image::black(image.width, image.height) : Image::black(image.height, image.width);
  for (Index i = 0; i < result.height; ++i)
    for (Index j = 0; j < result.width; ++j) {
      Index y = transposes ? j : i, x = transposes ? i : j;
      if (from_bottom) y = image.height - 1 - y;
      if (from_right) x = image.width - 1 - x;
      std::copy_n(image.row(y) + 3 * x, 3, result.row(i) + 3 * j);
    }
  return result;
}

}  // namespace gyr::media
