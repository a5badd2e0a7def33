// SPDX-License-Identifier: BSD-3-Clause
// Tests of sentence-order prediction (ALBERT) with the program: both losses are logged, a run resumed on two pipeline
// stages ends with the same bits, and the head is added to a masked language model or dropped.
#include <gtest/gtest.h>

#include <cmath>

#include "regression/support/material.hpp"

namespace gyr::testing::sentence_order_suite {

namespace fs = std::filesystem;

namespace {

const Words masked{"model.pattern='*-*-'",           "model.attention.causal=false", "model.norm_placement=after", "model.type_vocab_size=2",
                   "model.tie_word_embeddings=true", "train.objective=mlm",          "train.mlm.mask_token=1",     "train.precision=fp64",
                   "data.order=documents",           "data.documents=separate"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
Result train(const fs::path& output, const Words& more, int ranks = 0) {
  return run(Material::get().train(output, with(masked, more)), {.ranks = ranks});
}

const Words ordered{"train.mlm.sentence_order=true"};

TEST(sentence_order, sentence_order_loss_is_logged_resume_bitwise_equal) {
  const Folder folder;
  const Words steps = with(ordered, {"train.steps=20", "checkpoint.every=10", "optimizer.decay_steps=20", "parallel.pipeline=2",
                                     "log.format=megatron", "train.eval_every=20", "train.eval_batches=2"});
  const Result full = train(folder / "whole", steps, 2);
  ASSERT_EQ(full.code, 0) << full.out << full.err;
  EXPECT_NE(full.out.find("sop loss: "), std::string::npos) << full.out;
  const auto logged = metrics(folder / "whole", "step");
  ASSERT_EQ(logged.size(), 20u);
  EXPECT_LT(logged.back()["loss"].get<double>(), logged.front()["loss"].get<double>() - 0.3);
  EXPECT_NEAR(logged.front()["sentence_order_loss"].get<double>(), std::log(2.), 0.1);
  ASSERT_EQ(train(folder / "parts", with(steps, {"train.steps=10"}), 2).code, 0);
  ASSERT_EQ(train(folder / "parts", with(steps, {"--resume"}), 2).code, 0);
  expect_bitwise_equal_runs(folder / "whole", folder / "parts", 20);
  EXPECT_NE(full.out.find("| order accuracy: "), std::string::npos) << full.out;
  const auto validated = metrics(folder / "whole", "validation");
  ASSERT_EQ(validated.size(), 1u);
  for (const char* key : {"accuracy", "order_accuracy"}) EXPECT_GT(double(validated[0].at(key)), 0.02) << key;
  std::vector<nlohmann::json> logged_by;
  for (const Words& grid : {Words{}, {"--tensor", "2"}, {"--pipeline", "2", "--batch", "3"}}) {
    const Words words{
        "eval",         Material::checkpoint(folder / "whole", 20), "--data", Material::get().prefix(), "--limit", "20", "--overwrite", "--json",
        folder / "json"};
    const Result scored = run(with(words, grid), {.ranks = grid.empty() ? 0 : 4});
    ASSERT_EQ(scored.code, 0) << scored.err;
    EXPECT_NE(scored.out.find("| order accuracy "), std::string::npos) << scored.out;
    logged_by.push_back(json_in(folder / "json").at("results"));
    for (const char* key : {"accuracy", "order_accuracy"}) EXPECT_EQ(logged_by.back().at(key), logged_by[0].at(key)) << key;
  }
}

TEST(sentence_order, sentence_order_head_is_added_or_dropped) {
  const Folder folder;
  ASSERT_EQ(train(folder / "masked", {"train.steps=4", "checkpoint.every=4"}).code, 0);
  const Words from_masked = with(ordered, {"--init-from", Material::checkpoint(folder / "masked", 4), "train.steps=2", "checkpoint.every=2"});
  const Result refused = train(folder / "x", from_masked);
  EXPECT_EQ(refused.code, 78) << refused.out;
  EXPECT_NE(refused.err.find("train.init_head=new"), std::string::npos) << refused.err;
  const Result drawn = train(folder / "ordered", with(from_masked, {"train.init_head=new"}));
  ASSERT_EQ(drawn.code, 0) << drawn.out << drawn.err;
  EXPECT_NE(drawn.out.find("new: pooler.dense.weight, pooler.dense.bias, sentence_order.bias, sentence_order.weight; left out: none"),
            std::string::npos)
      << drawn.out;
  const Result left = train(folder / "left", {"--init-from", Material::checkpoint(folder / "ordered", 2), "train.init_head=new",
                                              "train.mlm.sentence_order=false", "train.steps=1"});
  ASSERT_EQ(left.code, 0) << left.out << left.err;
  EXPECT_NE(left.out.find("new: none; left out: pooler.dense.weight"), std::string::npos) << left.out;
}

}  // namespace

}  // namespace gyr::testing::sentence_order_suite
