// SPDX-License-Identifier: BSD-3-Clause
// LLaVA's config.json and tensor names: what is read, what is refused by key, and which names a folder may have. Equality with
// transformers is tested in grid/huggingface.cpp.
#include <nlohmann/json.hpp>

#include "modules/model/layer.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/golden.hpp"
#include "regression/support/testing.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/model_folder.hpp"

namespace gyr::testing::llava_suite {
namespace {

using Json = nlohmann::json;

Json config_of(const char* name) { return Json::parse(contents(golden(name).folder / config_file_name)); }

void expect_refused(const std::string& why, const std::function<void(Json&)>& change) {
  Json json = config_of("llava");
  change(json);
  const Error error = error_of([&] { parse_config_json(json.dump(), "config.json"); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what() << "\n  expected: " << why;
}

// The folder with each tensor renamed, which changes only the header of its file.
void write_renamed(const std::filesystem::path& from, const Folder& to, const std::function<std::string(const std::string&)>& renamed) {
  const std::string file = contents(from / one_file_name);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const Json header = Json::parse(file.substr(sizeof length, length));
  Json other = Json::object();
  for (const auto& [name, value] : header.items()) other[renamed(name)] = value;
  const std::string text = other.dump();
  const std::uint64_t size = text.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  to.write(one_file_name, bytes + text + file.substr(sizeof length + length));
  to.write(config_file_name, contents(from / config_file_name));
}

}  // namespace

TEST(llava, config_gives_tower_and_text) {
  const ModelConfig clip = golden("llava").model, siglip = golden("llava_siglip").model, hybrid = golden("llava_falcon_h1").model;
  EXPECT_EQ(clip.pattern, "*-*-V*-*-");
  EXPECT_EQ(siglip.pattern, "*-*-V*-*-");
  EXPECT_EQ(hybrid.pattern, "*-*-VPP");
  EXPECT_EQ(clip.vision.unused_layers, 1);
  EXPECT_EQ(siglip.vision.unused_layers, 0);
  EXPECT_TRUE(clip.vision.drops_first_row && !siglip.vision.drops_first_row && !hybrid.vision.drops_first_row);
  EXPECT_EQ(clip.vision.activation, Activation::quick_gelu);
  EXPECT_EQ(siglip.vision.activation, Activation::gelu_tanh);
  EXPECT_EQ(hybrid.vision.activation, Activation::gelu);
  EXPECT_EQ(siglip.vision.projector_activation, Activation::relu);
  EXPECT_TRUE(clip.vision.projector_bias && !siglip.vision.projector_bias);
  EXPECT_EQ(clip.vision.image_token, 5);
  EXPECT_EQ(clip.vision.rows_in_text(), 4);
  EXPECT_EQ(hybrid.vision.rows_in_text(), 5);
}

TEST(llava, unsupported_settings_are_refused_by_key) {
  expect_refused("vision_feature_layer", [](Json& j) { j["vision_feature_layer"] = {-2, -5}; });
  expect_refused("vision_feature_layer is -4, which computes no layer of the 3", [](Json& j) { j["vision_feature_layer"] = -4; });
  expect_refused("vision_feature_select_strategy is \"patch\"", [](Json& j) { j["vision_feature_select_strategy"] = "patch"; });
  expect_refused("vision_config: model_type is \"pixtral\"; supported are clip_vision_model and siglip_vision_model",
                 [](Json& j) { j["vision_config"]["model_type"] = "pixtral"; });
  expect_refused("text_config: model_type is \"gpt2\"; supported behind a tower are llama", [](Json& j) { j["text_config"]["model_type"] = "gpt2"; });
  expect_refused("vision_config is null", [](Json& j) { j.erase("vision_config"); });
  expect_refused("image_token_index is 40", [](Json& j) { j["image_token_index"] = 40; });
  expect_refused("tie_word_embeddings is true, but that of text_config is false", [](Json& j) { j["tie_word_embeddings"] = true; });
  expect_refused("num_channels", [](Json& j) { j["vision_config"]["num_channels"] = 1; });
}

// FalconH1Model multiplies only rows that it embeds itself, and only FalconH1ForCausalLM scales the logits.
TEST(llava, multipliers_of_the_text_are_not_applied) {
  Json json = config_of("llava_falcon_h1");
  json["text_config"]["embedding_multiplier"] = 2.5, json["text_config"]["lm_head_multiplier"] = 0.5;
  const HuggingFaceConfig read = parse_config_json(json.dump(), "config.json");
  EXPECT_EQ(read.model.embedding_multiplier, 1);
  EXPECT_EQ(read.model.lm_head_multiplier, 1);
  ASSERT_EQ(read.notes.size(), 1u);
  EXPECT_NE(read.notes[0].find("embedding_multiplier and lm_head_multiplier are not applied"), std::string::npos);
  HuggingFaceConfig scaled = read;
  scaled.model.embedding_multiplier = 2.5;
  const Error error = error_of([&] { write_config_json(scaled); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("model.embedding_multiplier is 2.5"), std::string::npos) << error.what();
}

// Folders of transformers 4 have vision_tower.vision_model, and may have tensors that no row of the text reads.
TEST(llava, both_names_of_tower_tensors_are_read) {
  const Golden& g = golden("llava_siglip");
  const Folder older;
  const std::string tower = "vision_tower.";
  write_renamed(g.folder, older,
                [&](const std::string& name) { return name.starts_with(tower) ? tower + "vision_model." + name.substr(tower.size()) : name; });
  const StoredNames names = names_in(older.path(), g.model), usual = names_in(g.folder, g.model);
  EXPECT_EQ(names.place("model.vision.patch_embedding.bias").name, "vision_tower.vision_model.embeddings.patch_embedding.bias");
  EXPECT_EQ(usual.place("model.vision.patch_embedding.bias").name, "vision_tower.embeddings.patch_embedding.bias");
  EXPECT_EQ(names.place("model.layers.5.self_attn.q_proj.weight").name, "language_model.model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(names.head(), "language_model.lm_head.weight");
  EXPECT_TRUE(usual.is_ignored_tensor("vision_tower.head.probe"));
  EXPECT_FALSE(usual.is_ignored_tensor("vision_tower.neck.weight"));
}

TEST(llava, processor_gives_mean_and_deviation_of_pixels) {
  const Golden& g = golden("llava");
  const Folder folder;
  write_renamed(g.folder, folder, [](const std::string& name) { return name; });
  folder.write("preprocessor_config.json", R"({"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 0.5]})");
  EXPECT_EQ(read_model_folder(folder.path()).model.vision.pixels, (PixelScale{{0.1, 0.2, 0.3}, {1, 2, 0.5}}));
  folder.write("preprocessor_config.json", R"({"image_std": [1, 0, 0.5]})");
  const Error error = error_of([&] { read_model_folder(folder.path()); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find("image_std is [1,0,0.5]; a list of 3 numbers above 0 is supported"), std::string::npos) << error.what();
}

}  // namespace gyr::testing::llava_suite
