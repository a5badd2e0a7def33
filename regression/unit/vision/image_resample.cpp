// SPDX-License-Identifier: BSD-3-Clause
// Resizing of pictures: the bytes of Pillow 13, on stated vectors and on drawn shapes, and laws of the filters.
#include "src/media/image/resample.hpp"

#include <numeric>
#include <random>

#include "regression/support/media.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::image_resample_suite {
namespace {

using media::Filter;
using media::Image;

std::vector<int> channel(const Image& image, std::size_t c) {
  std::vector<int> values;
  for (std::size_t i = c; i < image.rgb.size(); i += 3) values.push_back(image.rgb[i]);
  return values;
}

int total(const Image& image) { return std::accumulate(image.rgb.begin(), image.rgb.end(), 0); }

TEST(image_resample, stated_vectors_of_pillow_are_reproduced) {
  struct Case {
    Index from_height, from_width, height, width;
    Filter filter;
    std::vector<int> first_channel;
    int total;
  };
  const Case cases[] = {
      {9, 7, 4, 5, Filter::bicubic, {53, 161, 95, 133, 93, 125, 113, 157, 136, 106, 141, 124, 144, 150, 154, 88, 118, 151, 107, 128}, 7750},
      {9, 7, 4, 5, Filter::lanczos, {50, 165, 94, 133, 91, 130, 112, 156, 137, 104, 137, 119, 152, 149, 155, 92, 122, 147, 108, 129}, 7758},
      {7,
       12,
       6,
       5,
       Filter::bicubic,
       {82,  106, 113, 132, 158, 114, 141, 111, 136, 172, 129, 130, 114, 151, 158,
        116, 157, 130, 152, 129, 112, 132, 126, 113, 101, 166, 163, 176, 85,  86},
       11684},
  };
  for (const Case& c : cases) {
    const Image image = resized(formula_image(c.from_height, c.from_width), c.height, c.width, c.filter);
    EXPECT_EQ(channel(image, 0), c.first_channel);
    EXPECT_EQ(total(image), c.total);
  }
  const Image larger = resized(formula_image(5, 6), 8, 9, Filter::bicubic);
  const std::vector<int> values = channel(larger, 0);
  EXPECT_EQ(std::vector<int>(values.begin(), values.begin() + 9), (std::vector<int>{0, 34, 106, 178, 96, 13, 84, 167, 219}));
  EXPECT_EQ(std::vector<int>(values.end() - 9, values.end()), (std::vector<int>{161, 70, 2, 108, 211, 242, 128, 172, 244}));
  EXPECT_EQ(total(larger), 28201);
}

TEST(image_resample, drawn_shapes_have_the_bytes_of_pillow) {
  EXPECT_GE(golden_media()["resized"].size(), 60u);
  for (const auto& c : golden_media()["resized"])
    EXPECT_EQ(sum_of(resized(formula_image(c[0], c[1]), c[2], c[3], Filter(c[4].get<int>()))), c[5].get<std::string>()) << c.dump();
}

TEST(image_resample, constant_pictures_stay_constant) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 60; ++draw) {
    const auto side = [&] { return Index(1 + random() % 70); };
    Image image = Image::black(side(), side());
    const std::uint8_t value = std::uint8_t(random());
    std::fill(image.rgb.begin(), image.rgb.end(), value);
    const Index height = side(), width = side();
    const Image result = resized(image, height, width, Filter(1 + random() % 5));
    ASSERT_EQ(result.rgb, std::vector<std::uint8_t>(std::size_t(3 * height * width), value)) << image.height << " x " << image.width;
  }
}

TEST(image_resample, mirrored_pictures_give_mirrored_results) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 30; ++draw) {
    const Image image = formula_image(1 + random() % 40, 1 + random() % 40);
    const Index height = 1 + random() % 40, width = 1 + random() % 40;
    for (const Filter filter : {Filter::lanczos, Filter::bilinear, Filter::bicubic})
      for (const int mirror : {2, 4}) {
        // Rounding of a half depends on the direction, so that a pixel may differ by 1 in each pass.
        const Image a = oriented(resized(image, height, width, filter), mirror), b = resized(oriented(image, mirror), height, width, filter);
        ASSERT_EQ(a.rgb.size(), b.rgb.size());
        for (std::size_t i = 0; i < a.rgb.size(); ++i) ASSERT_LE(std::abs(a.rgb[i] - b.rgb[i]), 2) << height << " x " << width;
      }
  }
}

}  // namespace
}  // namespace gyr::testing::image_resample_suite
