// SPDX-License-Identifier: BSD-3-Clause
// Resizes a picture to the same bytes as Pillow's Image.resize for 8-bit channels.
#pragma once

#include "src/media/image/image.hpp"

namespace gyr::media {

// Values of `resample` in preprocessor_config.json, as in Pillow. Pillow's 0 (nearest) is not supported.
enum class Filter { lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

Image resized(const Image&, Index height, Index width, Filter);

}  // namespace gyr::media
