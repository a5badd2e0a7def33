// SPDX-License-Identifier: BSD-3-Clause
// Decoding of PNG, JPEG and WebP: the pixels of Pillow, all orientations, limits, and damaged files, which are refused
// with a reason and never crash.
#include <functional>
#include <random>

#include "regression/support/media.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/media/codecs/decode.hpp"

namespace gyr::testing::image_codecs_suite {
namespace {

using media::decode_image;
using media::DecodeLimits;
using media::Image;

class image_codecs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!media::missing_libraries().empty()) GTEST_SKIP() << "this build lacks " << media::missing_libraries();
  }
};

void expect_refused(const std::string& bytes, const std::string& part, const DecodeLimits& limits = {}) {
  const std::string reason = refusal_of([&] { decode_image(bytes, limits); });
  EXPECT_NE(reason.find(part), std::string::npos) << "'" << reason << "' lacks '" << part << "'";
}

TEST_F(image_codecs, decoded_files_have_the_pixels_of_pillow) {
  EXPECT_GE(golden_media()["files"].size(), 20u);
  for (const auto& file : golden_media()["files"]) {
    const Image image = decode_image(golden_picture(file["name"]));
    EXPECT_EQ(image.height, file["height"].get<Index>()) << file["name"];
    EXPECT_EQ(image.width, file["width"].get<Index>()) << file["name"];
    EXPECT_EQ(sum_of(image), file["sum"].get<std::string>()) << file["name"];
  }
}

// A tag of EXIF data: number 0x0112, type 3 (16 bits), count 1, little-endian.
const std::string tag("\x12\x01\x03\0\x01\0\0\0", 8);

TEST_F(image_codecs, exif_orientation_moves_every_pixel) {
  using Place = std::pair<Index, Index>;
  const std::function<Place(Index, Index, Index, Index)> places[] = {// of pixel (i, j) of a stored picture of h x w
                                                                     [](Index i, Index j, Index, Index) { return Place(i, j); },
                                                                     [](Index i, Index j, Index, Index w) { return Place(i, w - 1 - j); },
                                                                     [](Index i, Index j, Index h, Index w) { return Place(h - 1 - i, w - 1 - j); },
                                                                     [](Index i, Index j, Index h, Index) { return Place(h - 1 - i, j); },
                                                                     [](Index i, Index j, Index, Index) { return Place(j, i); },
                                                                     [](Index i, Index j, Index h, Index) { return Place(j, h - 1 - i); },
                                                                     [](Index i, Index j, Index h, Index w) { return Place(w - 1 - j, h - 1 - i); },
                                                                     [](Index i, Index j, Index, Index w) { return Place(w - 1 - j, i); }};
  std::string bytes = golden_picture("orientation6.jpg");
  const std::size_t at = bytes.find(tag) + tag.size();
  bytes[at] = 1;
  const Image stored = decode_image(bytes);
  for (int orientation = 0; orientation <= 9; ++orientation) {
    bytes[at] = char(orientation);
    const Image shown = decode_image(bytes);
    const auto& place = places[orientation >= 1 && orientation <= 8 ? orientation - 1 : 0];
    ASSERT_EQ(shown.height, orientation >= 5 && orientation <= 8 ? stored.width : stored.height) << orientation;
    for (Index i = 0; i < stored.height; ++i)
      for (Index j = 0; j < stored.width; ++j) {
        const auto [y, x] = place(i, j, stored.height, stored.width);
        ASSERT_TRUE(std::equal(stored.row(i) + 3 * j, stored.row(i) + 3 * j + 3, shown.row(y) + 3 * x)) << orientation << ": " << i << ", " << j;
      }
  }
}

TEST_F(image_codecs, alpha_is_blended_over_white) {
  std::vector<std::uint8_t> rgba;
  for (int value = 0; value < 256; ++value)
    for (int alpha = 0; alpha < 256; ++alpha) rgba.insert(rgba.end(), {std::uint8_t(value), 0, 255, std::uint8_t(alpha)});
  const Image image = media::over_white(256, 256, rgba);
  for (int value = 0; value < 256; ++value)
    for (int alpha = 0; alpha < 256; ++alpha) {
      const std::uint8_t* const pixel = image.row(value) + 3 * alpha;
      ASSERT_EQ(pixel[0], std::lround((value * alpha + 255.0 * (255 - alpha)) / 255)) << value << " " << alpha;
      ASSERT_EQ(pixel[1], 255 - alpha);
      ASSERT_EQ(pixel[2], 255);
    }
}

TEST_F(image_codecs, unsupported_files_are_named_with_a_remedy) {
  for (const auto& file : golden_media()["refused"]) expect_refused(golden_picture(file["name"]), file["reason"]);
  expect_refused("", "is an empty file");
  expect_refused("hello", "is no PNG, JPEG or WebP file");
  expect_refused("<svg xmlns='x'/>", "is a SVG file");
  expect_refused(std::string("\0\0\0\x20"
                             "ftypheic",
                             12),
                 "HEIC");
  expect_refused("<html>", "is a web page");
  expect_refused("version https://git-lfs.github.com/spec/v1", "Git LFS");
}

// Big-endian 32-bit value.
std::string big(unsigned value) { return {char(value >> 24), char(value >> 16), char(value >> 8), char(value)}; }

TEST_F(image_codecs, large_sizes_are_refused_before_memory_is_taken) {
  std::string jpeg = golden_picture("progressive.jpg");
  const std::size_t frame = jpeg.find("\xff\xc2");
  jpeg.replace(frame + 5, 4, "\xff\x00\xff\x00", 4);  // 65280 x 65280
  expect_refused(jpeg, "4261478400 in all; the limit is 89478485 (--max-pixels)");
  jpeg.replace(frame + 5, 4, "\xff\xff\x00\x01", 4);
  expect_refused(jpeg, "is a damaged JPEG file: Maximum supported image dimension");
  std::string png = golden_picture("rgb.png");
  png.replace(16, 8, big(1u << 30) + big(1u << 30));
  expect_refused(png, "PNG file: ");
  for (const char* name : {"rgb.png", "lossy.webp", "sampling1.jpg"}) {
    DecodeLimits limits;
    limits.pixels = 500;
    expect_refused(golden_picture(name), "the limit is 500 (--max-pixels)", limits);
    limits = {}, limits.side = 40;
    expect_refused(golden_picture(name), name == std::string("rgb.png") ? "PNG file: " : "the longest side may have 40", limits);
  }
  DecodeLimits limits;
  limits.scans = 3;
  expect_refused(golden_picture("progressive.jpg"), "it has more than 3 scans", limits);
  std::string chunk = golden_picture("rgb.png");
  chunk.insert(33, big(9 << 20) + "tEXt" + std::string(std::size_t(9 << 20) + 4, 'x'));
  expect_refused(chunk, "has a PNG chunk of 9437184 bytes");
}

TEST_F(image_codecs, truncated_and_extended_files_are_refused) {
  std::mt19937 random(seed_of_run());
  for (const auto& file : golden_media()["files"]) {
    const std::string bytes = golden_picture(file["name"]), name = file["name"];
    for (int draw = 0; draw < 12; ++draw) {
      const std::size_t length = draw == 0 ? bytes.size() - 1 : random() % bytes.size();
      EXPECT_NE(refusal_of([&] { decode_image(bytes.substr(0, length)); }), "") << name << " cut at " << length;
    }
    expect_refused(bytes + std::string(1 + random() % 9, '\1'), "after the end of the");
  }
}

TEST_F(image_codecs, mutated_files_decode_or_are_refused) {
  std::mt19937 random(seed_of_run());
  DecodeLimits limits;
  limits.pixels = 1'000'000;
  int refused = 0, draws = 0;
  for (const auto& file : golden_media()["files"]) {
    const std::string sound = golden_picture(file["name"]);
    for (int draw = 0; draw < 40; ++draw, ++draws) {
      std::string bytes = sound;
      for (unsigned change = 1 + random() % 4; change-- > 0;) {
        const std::size_t at = random() % bytes.size();
        if (random() % 3 > 0) bytes[at] = char(random());
        else if (random() % 2 == 0) bytes.erase(at, 1 + random() % 9);
        else bytes.insert(at, 1 + random() % 9, char(random()));
        if (bytes.empty()) bytes = "x";
      }
      try {
        const Image image = decode_image(bytes, limits);
        ASSERT_EQ(image.rgb.size(), std::size_t(3 * image.height * image.width));
      } catch (const media::BadItem& bad) {
        ++refused;
        ASSERT_NE(bad.reason, "");
      }
    }
  }
  std::printf("%d of %d mutated files were refused\n", refused, draws);
  EXPECT_GT(refused, draws / 2);
}

}  // namespace
}  // namespace gyr::testing::image_codecs_suite
