// SPDX-License-Identifier: BSD-3-Clause
// JPEG by libjpeg-turbo with the settings of Pillow: the accurate integer DCT and smooth upsampling of colours.
#include <csetjmp>
#include <cstddef>
#include <cstdio>

// jpeglib.h uses FILE and size_t without declaring them.
#include <jpeglib.h>

#include "src/media/codecs/codecs.hpp"

namespace gyr::media {

namespace {

// The library reports errors by calling a function that must not return. It is C, so no exception may pass through it.
struct JpegSession {
  jpeg_decompress_struct library{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf failed{};
  char message[JMSG_LENGTH_MAX] = "";
  int most_scans = 0;

  JpegSession() = default;
  JpegSession(const JpegSession&) = delete;
  ~JpegSession() { jpeg_destroy_decompress(&library); }
};

JpegSession& session_of(j_common_ptr library) { return *static_cast<JpegSession*>(library->client_data); }

[[noreturn]] void stop_jpeg(j_common_ptr library) {
  JpegSession& session = session_of(library);
  library->err->format_message(library, session.message);
  std::longjmp(session.failed, 1);
}

void stop_at_warning(j_common_ptr library, int level) {
  if (level < 0) stop_jpeg(library);
}

// Called once per row of blocks of every scan.
void stop_after_scans(j_common_ptr library) {
  JpegSession& session = session_of(library);
  if (session.library.input_scan_number <= session.most_scans) return;
  std::snprintf(session.message, sizeof session.message, "it has more than %d scans", session.most_scans);
  std::longjmp(session.failed, 1);
}

// Runs calls of the library; BadItem if one of them fails. `calls` must not own anything, because a failure leaves it
// without destructors.
template <class Calls>
void run_jpeg(JpegSession& session, const Calls& calls) {
  if (setjmp(session.failed) == 0) {
    calls(session.library);
    return;
  }
  refuse_item("is a damaged JPEG file: {}", session.message);
}

void open_jpeg(JpegSession& session, std::string_view bytes, const DecodeLimits& limits) {
  session.library.err = jpeg_std_error(&session.errors);
  session.library.client_data = &session;
  session.errors.error_exit = stop_jpeg;
  session.errors.emit_message = stop_at_warning;
  session.progress.progress_monitor = stop_after_scans;
  session.most_scans = limits.scans;
  run_jpeg(session, [&](jpeg_decompress_struct& library) {
    jpeg_create_decompress(&library);
    library.progress = &session.progress;
    jpeg_mem_src(&library, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_save_markers(&library, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&library, TRUE);
  });
}

int orientation_of(const jpeg_decompress_struct& library) {
  using namespace std::string_view_literals;
  for (auto marker = library.marker_list; marker; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (data.starts_with("Exif\0\0"sv)) return exif_orientation(data);
  }
  return 1;
}

}  // namespace

StoredImage decode_jpeg(std::string_view bytes, const DecodeLimits& limits) {
  JpegSession session;
  open_jpeg(session, bytes, limits);
  jpeg_decompress_struct& library = session.library;
  require_size(library.image_height, library.image_width, limits);
  if (library.jpeg_color_space == JCS_CMYK || library.jpeg_color_space == JCS_YCCK)
    refuse_item("is a JPEG file in CMYK colours, which are not supported; convert it to RGB");
  if (library.num_components != 1 && library.num_components != 3)
    refuse_item("is a JPEG file with {} colour components, which is not supported; convert it to RGB", library.num_components);
  StoredImage stored{Image::black(library.image_height, library.image_width), orientation_of(library)};
  Image& image = stored.image;
  run_jpeg(session, [&](jpeg_decompress_struct& l) {
    l.out_color_space = JCS_RGB;
    l.dct_method = JDCT_ISLOW;
    l.do_fancy_upsampling = TRUE;
    jpeg_start_decompress(&l);
    while (l.output_scanline < l.output_height) {
      JSAMPROW row = image.row(l.output_scanline);
      jpeg_read_scanlines(&l, &row, 1);
    }
    jpeg_finish_decompress(&l);
  });
  const std::size_t left = library.src->bytes_in_buffer;
  if (left > 0) refuse_item("has {} bytes after the end of the JPEG picture; save it again as a single picture", left);
  return stored;
}

}  // namespace gyr::media
