// SPDX-License-Identifier: BSD-3-Clause
// Reward models of Hugging Face families: scores of texts equal those of transformers, and a folder is written again with the
// same bytes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "modules/objectives/objective.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "src/base/json.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::reward_models_suite {
namespace {

namespace fs = std::filesystem;

const fs::path golden_models = fs::path(GYR_SOURCE_DIR) / "regression/golden/reward_models";

template <class T>
double worst_error(const fs::path& folder) {
  const nlohmann::json expected = nlohmann::json::parse(contents(folder / "scores.json"));
  const ModelConfig model = inference_run(folder).model;
  double worst = 0;
  for (std::size_t i = 0; i < expected.at("texts").size(); ++i) {
    MicroBatch batch{1, 0, expected["texts"][i].get<std::vector<Token>>(), {}};
    batch.seq_length = Index(batch.tokens.size());
    batch.labels.assign(batch.tokens.size(), ignored_label);
    EngineConfig config;
    config.model = model, config.seq_length = batch.seq_length, config.training = false;
    Rig<T> rig(config, single_rank_grid(model.layers()));
    load_weights(folder, rig.engine);
    const std::vector<RowScore> rows = rig.engine.scores([&](int) { return batch; }, 1).at(0).rows;
    const double score = expected["scores"][i];
    worst = std::max(worst, std::abs(rows.back().loss - score) / std::max(1.0, std::abs(score)));
  }
  return worst;
}

TEST(reward_models, scores_equal_those_of_transformers) {
  int families = 0;
  for (const auto& entry : fs::directory_iterator(golden_models)) {
    ++families;
    EXPECT_LT(worst_error<double>(entry.path()), 1e-5) << entry.path();
    EXPECT_LT(worst_error<float>(entry.path()), 1e-5) << entry.path();
  }
  EXPECT_EQ(families, 6);
}

TEST(reward_models, folders_are_written_with_the_same_bytes) {
  for (const auto& entry : fs::directory_iterator(golden_models)) {
    const Folder folder;
    std::vector<std::string> notes;
    const Note note = [&](const std::string& text) { notes.push_back(text); };
    import_folder(entry.path(), folder / "model", false, note, "");
    export_folder(folder / "model", folder / "again", {}, note);
    EXPECT_EQ(contents(entry.path() / "model.safetensors"), contents(folder / "again/model.safetensors")) << entry.path();
    const auto before = nlohmann::json::parse(contents(entry.path() / "config.json")),
               after = nlohmann::json::parse(contents(folder / "again/config.json"));
    for (const char* key : {"architectures", "model_type", "id2label", "vocab_size"}) EXPECT_EQ(before.at(key), after.at(key)) << entry.path() << key;
    const bool named =
        std::any_of(notes.begin(), notes.end(), [](const std::string& text) { return text.find("transformers has no class") != text.npos; });
    EXPECT_EQ(named, entry.path().filename() == "falcon_h1") << entry.path();
  }
}

}  // namespace
}  // namespace gyr::testing::reward_models_suite
