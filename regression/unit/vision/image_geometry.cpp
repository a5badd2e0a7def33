// SPDX-License-Identifier: BSD-3-Clause
// Image processors: sizes and pixels of transformers' processors with the backend "pil", and errors in
// preprocessor_config.json.
#include <random>

#include "regression/support/media.hpp"
#include "regression/support/mutation.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/media/codecs/decode.hpp"
#include "src/media/processor/geometry.hpp"

namespace gyr::testing::image_geometry_suite {
namespace {

using media::Extent2;
using media::Image;
using media::Processor;
using nlohmann::json;

Processor processor_of(const json& config) { return media::parse_processor(config.dump(), "preprocessor_config.json"); }

// The picture that a row of golden/media_images.json is about: "HEIGHTxWIDTH" of the formula, or the name of a file.
Image source_of(const std::string& name) {
  const std::size_t x = name.find('x');
  if (name.find('.') == name.npos) return formula_image(std::stol(name), std::stol(name.substr(x + 1)));
  return media::decode_image(golden_picture(name));
}

TEST(image_geometry, prepared_pictures_equal_those_of_transformers) {
  const bool decodes = media::missing_libraries().empty();
  int compared = 0;
  for (const auto& row : golden_media()["prepared"]) {
    const std::string source = row["source"];
    if (!decodes && source.find('.') != source.npos) continue;
    const media::PreparedImage result = prepared(processor_of(golden_media()["processors"][row["processor"].get<std::string>()]), source_of(source));
    ASSERT_EQ(result.items.size(), row["items"].size()) << row.dump();
    for (std::size_t i = 0; i < result.items.size(); ++i) {
      const Image& item = result.items[i];
      EXPECT_EQ(json({item.height, item.width, sum_of(item)}), row["items"][i]) << row["processor"] << " " << source << ", picture " << i;
    }
    if (row.contains("tiles")) {
      EXPECT_EQ(json({result.tile_rows, result.tile_columns}), row["tiles"]) << row.dump();
    }
    if (row.contains("grid")) {
      EXPECT_EQ(json({result.grid_height, result.grid_width}), row["grid"]) << row.dump();
    }
    ++compared;
  }
  EXPECT_GE(compared, 90);
}

TEST(image_geometry, stated_sizes_are_reproduced) {
  const Processor clip = processor_of({{"image_processor_type", "CLIPImageProcessor"}, {"size", 336}, {"crop_size", 336}});
  EXPECT_EQ(resized_extent(clip, {480, 640}), (Extent2{336, 448}));
  EXPECT_EQ(resized_extent(clip, {100, 37}), (Extent2{908, 336}));
  const Processor tiles = processor_of({{"image_processor_type", "Idefics3ImageProcessor"}});
  EXPECT_EQ(resized_extent(tiles, {480, 640}), (Extent2{1092, 1456}));
  EXPECT_EQ(resized_extent(tiles, {1000, 300}), (Extent2{1456, 728}));
  const Processor native = processor_of({{"image_processor_type", "Qwen2VLImageProcessor"}});
  EXPECT_EQ(resized_extent(native, {480, 640}), (Extent2{476, 644}));
  EXPECT_EQ(resized_extent(native, {3000, 4000}), (Extent2{840, 1148}));
  EXPECT_EQ(resized_extent(native, {14, 14}), (Extent2{56, 56}));
  EXPECT_EQ(resized_extent(native, {42, 70}), (Extent2{56, 56}));
}

TEST(image_geometry, native_sizes_are_multiples_within_bounds) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 2000; ++draw) {
    const Index patch = 1 + random() % 16, merge = 1 + random() % 3, cell = patch * merge, least = 1 + random() % 5000;
    const Index most = std::max<Index>(least, cell * cell) + random() % 200'000;
    const Processor p = processor_of({{"image_processor_type", "Qwen2VLImageProcessor"},
                                      {"patch_size", patch},
                                      {"merge_size", merge},
                                      {"min_pixels", least},
                                      {"max_pixels", most}});
    const Extent2 file{Index(1 + random() % 3000), Index(1 + random() % 3000)};
    if (std::max(file.height, file.width) > 200 * std::min(file.height, file.width)) continue;
    const Extent2 size = resized_extent(p, file);
    EXPECT_EQ(size.height % cell + size.width % cell, 0) << size.height << " x " << size.width;
    EXPECT_GE(size.height * size.width, cell * cell);
    // A side that is raised to one cell may exceed the limit.
    if (size.height > cell && size.width > cell) {
      EXPECT_LE(size.height * size.width, most) << file.height << " x " << file.width;
    }
  }
}

TEST(image_geometry, extreme_shapes_are_refused_with_both_sizes) {
  const Processor native = processor_of({{"image_processor_type", "Qwen2VLImageProcessor"}});
  const std::string ratio = refusal_of([&] { resized_extent(native, {2, 401}); });
  EXPECT_NE(ratio.find("has 2 x 401 pixels (height x width); the longest side may be 200 times the shortest"), std::string::npos) << ratio;
  EXPECT_EQ(refusal_of([&] { resized_extent(native, {2, 400}); }), "");
  const Processor clip = processor_of({{"image_processor_type", "CLIPImageProcessor"}});
  const std::string wide = refusal_of([&] { prepared(clip, formula_image(1, 60'000)); });
  EXPECT_NE(wide.find("has 1 x 60000 pixels (height x width), which the processor would resize to 224 x 13440000"), std::string::npos) << wide;
}

TEST(image_geometry, wrong_configurations_name_the_key) {
  const auto expect_named = [](const json& config, const std::string& part) {
    const Error error = error_of([&] { processor_of(config); });
    EXPECT_EQ(error.code, Exit::data) << config.dump();
    EXPECT_NE(std::string(error.what()).find("preprocessor_config.json: " + part), std::string::npos) << error.what() << "\nlacks " << part;
  };
  const auto with = [](const char* type, const char* key, const json& value) { return json{{"image_processor_type", type}, {key, value}}; };
  const char *clip = "CLIPImageProcessor", *siglip = "SiglipImageProcessor", *tiles = "Idefics3ImageProcessor", *native = "Qwen2VLImageProcessor";
  expect_named(json::object(), "image_processor_type: is missing");
  expect_named(json::array(), "is not a JSON object");
  expect_named({{"image_processor_type", "DonutImageProcessor"}}, "image_processor_type: is \"DonutImageProcessor\", which is not supported");
  expect_named(with(clip, "do_thumbnail", true), "do_thumbnail: this key is not known for this class");
  expect_named(with(clip, "max_image_size", {{"longest_edge", 3}}), "max_image_size: this key is not known");
  for (const json& resample : {json(0), json(6), json("bicubic"), json(2.5)}) expect_named(with(clip, "resample", resample), "resample: is ");
  expect_named(with(clip, "size", 0), "size: is 0; it must be an integer from 1 to 16384");
  expect_named(with(clip, "size", {{"shortest_edge", 1 << 20}}), "size.shortest_edge: is 1048576");
  expect_named(with(clip, "size", {{"longest_edge", 3}}), "size: is ");
  expect_named(with(clip, "do_center_crop", false), "do_center_crop: is false");
  expect_named(with(clip, "do_resize", false), "do_resize: is false; only true is supported");
  expect_named(with(siglip, "rescale_factor", 1), "rescale_factor: is 1; only 1/255");
  expect_named(with(siglip, "image_mean", {0.5, 0.5}), "image_mean: is [0.5,0.5]");
  expect_named(with(siglip, "image_std", {0.5, 0.5, 0}), "image_std: is ");
  expect_named(with("Gemma3ImageProcessor", "do_pan_and_scan", true), "do_pan_and_scan: is true");
  expect_named(with(tiles, "size", 12), "size: is 12; it must be an object with the key longest_edge");
  expect_named(with(tiles, "do_image_splitting", 1), "do_image_splitting: is 1");
  expect_named(with(native, "max_pixels", 100), "max_pixels: is 100");
  expect_named(with(native, "size", {{"height", 3}, {"width", 3}}), "size: is ");
  const Error twice = error_of([] { media::parse_processor("{\"size\": 1, \"size\": 2}", "preprocessor_config.json"); });
  EXPECT_EQ(twice.code, Exit::data) << twice.what();
  EXPECT_EQ(error_of([] { media::read_processor("/nonexistent"); }).code, Exit::missing);
}

TEST(image_geometry, mutated_configurations_are_read_or_refused) {
  const unsigned seed = seed_of_run();
  const Folder folder;
  Mutation mutation(seed);
  int refused = 0, draws = 0;
  for (const auto& [name, config] : golden_media()["processors"].items())
    for (int draw = 0; draw < 40; ++draw, ++draws) {
      const std::filesystem::path file = folder / fmt::format("{}{}.json", name, draw);
      put_contents(file, config.dump());
      const std::string what = mutation.damage(file);
      const Error error = error_of([&] { prepared(media::read_processor(file), formula_image(9, 14)); });
      refused += error.code != Exit::ok;
      EXPECT_TRUE(error.code == Exit::ok || std::string(error.what()).find(name) != std::string::npos) << what << "\n" << error.what();
    }
  EXPECT_GT(refused, draws / 3);
}

TEST(image_geometry, settings_text_identifies_a_processor) {
  std::set<std::string> texts;
  for (const auto& [name, config] : golden_media()["processors"].items()) {
    const std::string text = processor_of(config).json();
    EXPECT_EQ(text, processor_of(config).json());
    EXPECT_TRUE(texts.insert(text).second) << name;
  }
}

}  // namespace
}  // namespace gyr::testing::image_geometry_suite
