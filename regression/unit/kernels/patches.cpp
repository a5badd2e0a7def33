// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/vision/patches.hpp"

#include <random>

#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::patches_suite {
namespace {

template <class T>
void expect_patches(Index rows, Index pixels, Index first, double limit) {
  std::mt19937_64 random(seed_of_run());
  Workbench bench;
  const PixelScale scale{{.1 + .01 * double(random() % 50), .4, .6}, {.2, .3, .1 + .01 * double(random() % 50)}};
  const Index width = image_channels * pixels;
  const auto bytes = bench.zeros<std::uint8_t>(rows * width);
  const auto positions = bench.zeros<std::int32_t>(rows);
  const auto x = bench.normal<T>(rows, width);
  for (Index i = 0; i < rows * width; ++i) bytes(i) = std::uint8_t(random());
  for (Index r = 0; r < rows; ++r) positions(r) = std::int32_t(random() % 3);
  patches<T>(bench.dev, scale, bytes, positions, first, x);
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < width; ++i) {
      const std::size_t c = std::size_t(i / pixels);
      const double expected = positions(r) < first ? 0 : (double(bytes(r * width + i)) / 255 - scale.mean[c]) / scale.std[c];
      EXPECT_NEAR(double(x(r, i)), expected, limit * std::max(1.0, std::abs(expected))) << r << " " << i;
    }
}

}  // namespace

TEST(patches, normalised_bytes_match_plain_loops) {
  for (const Index first : {0, 1})
    for (const auto& [rows, pixels] : {std::pair<Index, Index>{1, 1}, {7, 9}, {70, 49}}) {
      expect_patches<double>(rows, pixels, first, 1e-14);
      expect_patches<float>(rows, pixels, first, 1e-5);
      expect_patches<bf16>(rows, pixels, first, 5e-3);
    }
}

}  // namespace gyr::testing::patches_suite
