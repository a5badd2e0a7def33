// SPDX-License-Identifier: BSD-3-Clause
// Orientation of a picture (EXIF 2.32, tag 0x0112), read by libexif. Damaged EXIF data count as none, as in Pillow.
#include <libexif/exif-data.h>

#include <memory>

#include "src/media/codecs/codecs.hpp"

namespace gyr::media {

std::string missing_libraries() { return ""; }

int exif_orientation(std::string_view exif) {
  using namespace std::string_literals;
  constexpr std::size_t most = std::size_t(1) << 20;  // an EXIF block of a JPEG file has at most 64 KiB
  const std::string mark = "Exif\0\0"s;
  if (exif.empty() || exif.size() > most) return 1;
  const std::string block = exif.starts_with(mark) ? std::string(exif) : mark + std::string(exif);
  const std::unique_ptr<ExifData, void (*)(ExifData*)> data(exif_data_new(), exif_data_unref);
  if (!data) return 1;
  exif_data_unset_option(data.get(), EXIF_DATA_OPTION_FOLLOW_SPECIFICATION);  // which would change the data that were read
  exif_data_load_data(data.get(), reinterpret_cast<const unsigned char*>(block.data()), unsigned(block.size()));
  const ExifEntry* const entry = exif_content_get_entry(data->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
  if (!entry || entry->format != EXIF_FORMAT_SHORT || entry->components != 1 || entry->size < 2) return 1;
  const int value = exif_get_short(entry->data, exif_data_get_byte_order(data.get()));
  return value >= 1 && value <= 8 ? value : 1;
}

}  // namespace gyr::media
