// SPDX-License-Identifier: BSD-3-Clause
#include "src/media/codecs/decode.hpp"

#include "src/base/foreign_file.hpp"

namespace gyr::media {

namespace {

// A format that is recognised only to name it.
struct KnownFormat {
  std::size_t at;
  std::string_view mark;
  const char* name;
};

const char* unsupported_format(std::string_view bytes) {
  using namespace std::string_view_literals;
  static constexpr KnownFormat formats[] = {{0, "GIF8"sv, "GIF"},
                                            {0, "II*\0"sv, "TIFF"},
                                            {0, "MM\0*"sv, "TIFF"},
                                            {0, "BM"sv, "BMP"},
                                            {4, "ftyp"sv, "HEIC or AVIF"},
                                            {4, "jP  "sv, "JPEG 2000"},
                                            {0, "\xff\x4f\xff"sv, "JPEG 2000"},
                                            {0, "<svg"sv, "SVG"},
                                            {0, "<?xml"sv, "SVG or XML"},
                                            {0, "%PDF"sv, "PDF"},
                                            {0, "PK\x03\x04"sv, "ZIP"}};
  for (const KnownFormat& format : formats)
    if (bytes.size() > format.at && bytes.substr(format.at).starts_with(format.mark)) return format.name;
  return nullptr;
}

StoredImage decode_stored(std::string_view bytes, const DecodeLimits& limits) {
  using namespace std::string_view_literals;
  if (bytes.empty()) refuse_item("is an empty file");
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return decode_png(bytes, limits);
  if (bytes.starts_with("\xff\xd8\xff"sv)) return decode_jpeg(bytes, limits);
  if (bytes.size() >= 12 && bytes.starts_with("RIFF"sv) && bytes.substr(8, 4) == "WEBP"sv) return decode_webp(bytes, limits);
  if (const char* const name = unsupported_format(bytes)) refuse_item("is a {} file, which is not supported; convert it to RGB JPEG or PNG", name);
  const std::string_view foreign = foreign_file(bytes);
  refuse_item("{}", foreign.empty() ? "is no PNG, JPEG or WebP file; convert it to RGB JPEG or PNG" : foreign);
}

}  // namespace

Image decode_image(std::string_view bytes, const DecodeLimits& limits) {
  StoredImage stored = decode_stored(bytes, limits);
  return oriented(std::move(stored.image), stored.orientation);
}

}  // namespace gyr::media
