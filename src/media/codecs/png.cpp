// SPDX-License-Identifier: BSD-3-Clause
// PNG by libpng. Palettes, grey and fewer bits are expanded, and 16-bit samples are reduced to their high byte. Colour
// profiles and gamma are ignored, as Pillow ignores them.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "src/media/codecs/codecs.hpp"

namespace gyr::media {

namespace {

struct PngSession {
  std::string_view bytes;
  std::size_t read = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf failed{};
  char message[200] = "", warning[200] = "";

  explicit PngSession(std::string_view file) : bytes(file) {}
  PngSession(const PngSession&) = delete;
  ~PngSession() { png_destroy_read_struct(&png, &info, nullptr); }
};

// libpng requires that this function does not return. No exception may pass through the library, which is C.
[[noreturn]] void stop_png(png_structp png, png_const_charp text) {
  PngSession& session = *static_cast<PngSession*>(png_get_error_ptr(png));
  std::snprintf(session.message, sizeof session.message, "%s", text);
  std::longjmp(session.failed, 1);
}

void keep_warning(png_structp png, png_const_charp text) {
  PngSession& session = *static_cast<PngSession*>(png_get_error_ptr(png));
  if (session.warning[0] == 0) std::snprintf(session.warning, sizeof session.warning, "%s", text);
}

void read_png_bytes(png_structp png, png_bytep to, std::size_t count) {
  PngSession& session = *static_cast<PngSession*>(png_get_io_ptr(png));
  if (count > session.bytes.size() - session.read) png_error(png, "it ends too early");
  std::memcpy(to, session.bytes.data() + session.read, count);
  session.read += count;
}

// Runs calls of the library; BadItem if one of them fails. `calls` must not own anything.
template <class Calls>
void run_png(PngSession& session, const Calls& calls) {
  if (setjmp(session.failed) == 0) {
    calls();
    return;
  }
  refuse_item("is a damaged PNG file: {}", session.message);
}

// Walks the chunks: length (4 bytes, high byte first), type (4), content, checksum (4).
void check_chunks(std::string_view bytes, const DecodeLimits& limits) {
  std::size_t at = 8;
  while (bytes.size() - at >= 12) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | std::uint8_t(bytes[at + i]);
    const std::string_view type = bytes.substr(at + 4, 4);
    if (type == "acTL") refuse_item("is an animated PNG file, which is not supported; save one picture of it as PNG");
    if (length > bytes.size() - at - 12) refuse_item("is a damaged PNG file: it ends inside a chunk");
    if (length > limits.chunk && type != "IDAT") refuse_item("has a PNG chunk of {} bytes; the limit is {}", length, limits.chunk);
    at += 12 + length;
    if (type != "IEND") continue;
    if (at < bytes.size()) refuse_item("has {} bytes after the end of the PNG picture; save it again", bytes.size() - at);
    return;
  }
  refuse_item("is a damaged PNG file: it ends too early");
}

void open_png(PngSession& session, const DecodeLimits& limits) {
  static const png_byte ignored[] = "iCCP\0gAMA\0cHRM\0sRGB\0sBIT\0hIST\0bKGD\0pHYs\0sPLT\0tIME\0tEXt\0zTXt\0iTXt\0oFFs\0pCAL\0sCAL";
  session.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &session, stop_png, keep_warning);
  session.info = session.png ? png_create_info_struct(session.png) : nullptr;
  if (!session.info) refuse_item("cannot be decoded: libpng cannot allocate memory");
  run_png(session, [&] {
    png_set_read_fn(session.png, &session, read_png_bytes);
    png_set_user_limits(session.png, png_uint_32(limits.side), png_uint_32(limits.side));
    png_set_chunk_malloc_max(session.png, limits.chunk);
    png_set_crc_action(session.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_keep_unknown_chunks(session.png, PNG_HANDLE_CHUNK_NEVER, ignored, int(sizeof ignored / 5));
    png_read_info(session.png, session.info);
  });
}

// Pixels with `channels` bytes each.
std::vector<std::uint8_t> read_pixels(PngSession& session, Index height, Index width, Index channels) {
  std::vector<std::uint8_t> pixels(std::size_t(height * width * channels));
  std::vector<png_bytep> rows;
  for (Index i = 0; i < height; ++i) rows.push_back(pixels.data() + i * width * channels);
  run_png(session, [&] {
    png_read_image(session.png, rows.data());
    png_read_end(session.png, session.info);
  });
  return pixels;
}

int orientation_of_png(PngSession& session) {
  png_uint_32 count = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(session.png, session.info, &count, &exif) == 0) return 1;
  return exif_orientation({reinterpret_cast<const char*>(exif), count});
}

}  // namespace

StoredImage decode_png(std::string_view bytes, const DecodeLimits& limits) {
  check_chunks(bytes, limits);
  PngSession session(bytes);
  open_png(session, limits);
  const Index height = png_get_image_height(session.png, session.info), width = png_get_image_width(session.png, session.info);
  require_size(height, width, limits);
  run_png(session, [&] {
    png_set_expand(session.png);
    png_set_strip_16(session.png);
    png_set_gray_to_rgb(session.png);
    png_set_interlace_handling(session.png);
    png_read_update_info(session.png, session.info);
  });
  const Index channels = png_get_channels(session.png, session.info);
  if (channels < 3 || Index(png_get_rowbytes(session.png, session.info)) != width * channels)
    refuse_item("is a PNG file with pixels of an unknown kind");
  std::vector<std::uint8_t> pixels = read_pixels(session, height, width, channels);
  if (session.warning[0] != 0) refuse_item("is a damaged PNG file: {}", session.warning);
  const int orientation = orientation_of_png(session);
  return {channels == 3 ? Image{height, width, std::move(pixels)} : over_white(height, width, pixels), orientation};
}

}  // namespace gyr::media
