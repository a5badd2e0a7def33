// SPDX-License-Identifier: BSD-3-Clause
// Decodes a PNG, JPEG or WebP file to RGB in the orientation in which it is to be shown.
#pragma once

#include "src/media/codecs/codecs.hpp"

namespace gyr::media {

// The format is recognised by the first bytes, not by the name of the file. BadItem names the reason and a remedy.
Image decode_image(std::string_view bytes, const DecodeLimits& = {});

}  // namespace gyr::media
