// SPDX-License-Identifier: BSD-3-Clause
// WebP by libwebp: one picture, lossy or lossless.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "src/media/codecs/codecs.hpp"

namespace gyr::media {

namespace {

// Bytes of the RIFF container by its header, with the pad byte of an odd length.
std::size_t container_bytes(std::string_view bytes) {
  std::size_t length = 0;
  for (std::size_t i = 8; i-- > 4;) length = length << 8 | std::uint8_t(bytes[i]);
  return 8 + length + length % 2;
}

int orientation_of_webp(std::string_view bytes) {
  const WebPData data{reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> demuxer(WebPDemux(&data), WebPDemuxDelete);
  if (!demuxer) return 1;
  WebPChunkIterator chunk;
  if (!WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk)) return 1;
  const int orientation = exif_orientation({reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

StoredImage decode_webp(std::string_view bytes, const DecodeLimits& limits) {
  const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK) refuse_item("is a damaged WebP file: its header is not valid");
  if (features.has_animation) refuse_item("is an animated WebP file, which is not supported; save one picture of it as PNG");
  require_size(features.height, features.width, limits);
  const std::size_t expected = container_bytes(bytes);
  if (expected > bytes.size()) refuse_item("is a damaged WebP file: it has {} of {} bytes", bytes.size(), expected);
  if (expected < bytes.size()) refuse_item("has {} bytes after the end of the WebP picture; save it again", bytes.size() - expected);
  const Index height = features.height, width = features.width;
  const int channels = features.has_alpha ? 4 : 3;
  std::vector<std::uint8_t> pixels(std::size_t(height * width * channels));
  const auto decode = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (!decode(data, bytes.size(), pixels.data(), pixels.size(), int(width * channels)))
    refuse_item("is a damaged WebP file: its pixels cannot be decoded");
  return {features.has_alpha ? over_white(height, width, pixels) : Image{height, width, std::move(pixels)}, orientation_of_webp(bytes)};
}

}  // namespace gyr::media
