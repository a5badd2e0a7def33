// SPDX-License-Identifier: BSD-3-Clause
// Decoders of PNG, JPEG and WebP: one file per library. A build without the libraries has missing.cpp in their place.
#pragma once

#include <string>
#include <string_view>

#include "src/media/image/bad_item.hpp"
#include "src/media/image/image.hpp"

namespace gyr::media {

// Limits on a single file. They are checked before memory is allocated.
struct DecodeLimits {
  Index pixels = 89'478'485;                 // Pillow's limit against decompression bombs
  Index side = 65'500;                       // pixels of a row or column
  std::size_t chunk = std::size_t(8) << 20;  // bytes of a PNG chunk without pixels
  int scans = 100;                           // scans of a progressive JPEG
};

// A picture as it is stored, and the orientation in which it is to be shown.
struct StoredImage {
  Image image;
  int orientation = 1;  // EXIF tag 0x0112, 1 to 8
};

// Names of the libraries that this build lacks, separated by commas; empty if it has all of them.
std::string missing_libraries();

// The arguments are complete files. BadItem for anything that the library or these limits do not accept, also for a
// warning of the library and for bytes after the end of the picture.
StoredImage decode_png(std::string_view bytes, const DecodeLimits&);
StoredImage decode_jpeg(std::string_view bytes, const DecodeLimits&);
StoredImage decode_webp(std::string_view bytes, const DecodeLimits&);

// Orientation in an EXIF block, with or without the six bytes "Exif\0\0" in front; 1 if there is none.
int exif_orientation(std::string_view exif);

// BadItem if the size exceeds the limits or is zero.
inline void require_size(Index height, Index width, const DecodeLimits& limits) {
  if (height < 1 || width < 1) refuse_item("has {} x {} pixels", height, width);
  if (height > limits.side || width > limits.side)
    refuse_item("has {} x {} pixels (height x width); the longest side may have {}", height, width, limits.side);
  if (height * width > limits.pixels)
    refuse_item("has {} x {} pixels, {} in all; the limit is {} (--max-pixels)", height, width, height * width, limits.pixels);
}

}  // namespace gyr::media
