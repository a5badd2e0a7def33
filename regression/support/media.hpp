// SPDX-License-Identifier: BSD-3-Clause
// Encoded pictures and checksums of their pixels by Pillow and transformers, from golden/media_images.json.
#pragma once

#include <nlohmann/json.hpp>

#include "regression/support/base64.hpp"
#include "regression/support/folder.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/media/image/bad_item.hpp"
#include "src/media/image/image.hpp"

namespace gyr::testing {

inline const nlohmann::json& golden_media() {
  static const auto all = nlohmann::json::parse(contents(std::filesystem::path(GYR_SOURCE_DIR) / "regression/golden/media_images.json"));
  return all;
}

// Content of an encoded picture of golden/media_images.json.
inline std::string golden_picture(const std::string& name) {
  for (const char* list : {"files", "refused"})
    for (const auto& file : golden_media()[list])
      if (file["name"] == name) return bytes_of_base64(file["data"].get<std::string>());
  ensure(false, "no picture {}", name);
  return {};
}

inline std::string sum_of(const media::Image& image) { return hex(checksum(image.rgb.data(), Index(image.rgb.size()))); }

// Channel c of pixel (i, j) is (37 i + 91 j + 53 c + 7 i j) mod 256.
inline media::Image formula_image(Index height, Index width) {
  media::Image image = media::Image::black(height, width);
  for (Index i = 0; i < height; ++i)
    for (Index j = 0; j < width; ++j)
      for (Index c = 0; c < 3; ++c) image.row(i)[3 * j + c] = std::uint8_t(37 * i + 91 * j + 53 * c + 7 * i * j);
  return image;
}

// The reason for which f refuses a file; empty if it does not.
template <class F>
std::string refusal_of(F&& f) {
  try {
    f();
  } catch (const media::BadItem& bad) {
    return bad.reason;
  }
  return "";
}

}  // namespace gyr::testing
