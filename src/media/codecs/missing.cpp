// SPDX-License-Identifier: BSD-3-Clause
// Decoders of a build without image libraries. Callers refuse to start because missing_libraries() is not empty.
#include "src/media/codecs/codecs.hpp"

namespace gyr::media {

std::string missing_libraries() { return GYR_MISSING_CODECS; }

StoredImage decode_png(std::string_view, const DecodeLimits&) { refuse_item("cannot be decoded, because this build lacks {}", missing_libraries()); }
StoredImage decode_jpeg(std::string_view, const DecodeLimits&) { refuse_item("cannot be decoded, because this build lacks {}", missing_libraries()); }
StoredImage decode_webp(std::string_view, const DecodeLimits&) { refuse_item("cannot be decoded, because this build lacks {}", missing_libraries()); }
int exif_orientation(std::string_view) { return 1; }

}  // namespace gyr::media
