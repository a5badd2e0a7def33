// SPDX-License-Identifier: BSD-3-Clause
// Tests of multi-token prediction (MTP) with the program. The loss of each depth is logged and falls, and a resumed run
// ends with the same bits. Evaluation and generation ignore the MTP modules. The modules can be added to a trained
// model or dropped.
#include <gtest/gtest.h>

#include <cmath>

#include "regression/support/material.hpp"

namespace gyr::testing::multi_token_suite {

namespace fs = std::filesystem;

namespace {

const Words ahead{"train.objective=mtp", "train.mtp.depths=2", "train.precision=fp64"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void trained(const fs::path& output, const Words& changes, int ranks = 0) {
  const Result r = run(Material::get().train(output, with(ahead, changes)), {.ranks = ranks});
  ASSERT_EQ(r.code, 0) << r.out << r.err;
}

double evaluated(const fs::path& checkpoint, int ranks = 0) {
  const Folder folder;
  const Result r = run({"eval", checkpoint, "--precision", "fp64", "--overwrite", "--json", folder / "summary.json"}, {.ranks = ranks});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  return json_in(folder / "summary.json").at("results").at("loss").get<double>();
}

TEST(multi_token, mtp_depths_learn_and_resume_with_same_bits) {
  const Folder folder;
  const Words steps{"train.steps=24", "checkpoint.every=12", "optimizer.decay_steps=24", "parallel.pipeline=2"};
  trained(folder / "whole", steps, 2);
  const auto logged = metrics(folder / "whole", "step");
  ASSERT_EQ(logged.size(), 24u);
  for (std::size_t k = 0; k < 2; ++k)
    EXPECT_LT(logged.back()["mtp_losses"][k].get<double>(), logged.front()["mtp_losses"][k].get<double>() - 0.3) << k;
  EXPECT_NEAR(logged.front()["mtp_losses"][0].get<double>(), std::log(300.), 0.3);
  trained(folder / "parts", with(steps, {"train.steps=12"}), 2);
  trained(folder / "parts", with(steps, {"--resume"}), 2);
  expect_bitwise_equal_runs(folder / "whole", folder / "parts", 24);
}

TEST(multi_token, evaluation_and_generation_ignore_mtp_modules) {
  const Folder folder;
  const Words steps{"train.steps=6", "train.eval_every=6", "train.eval_batches=2"};
  trained(folder / "mtp", steps);
  const fs::path checkpoint = Material::checkpoint(folder / "mtp", 6);
  // A next_token run that starts from these weights drops the MTP modules.
  trained(folder / "next", {"--init-from", checkpoint, "train.objective=next_token", "train.steps=1", "optimizer.lr=0", "optimizer.min_lr=0"});
  const fs::path single_rank = Material::checkpoint(folder / "next", 1);
  const Result info = run({"info", single_rank});
  EXPECT_EQ(info.out.find("/mtp/"), std::string::npos);
  EXPECT_NE(run({"info", checkpoint}).out.find("/model/mtp/1/eh_proj/weight"), std::string::npos);
  EXPECT_EQ(evaluated(single_rank), evaluated(checkpoint));
  EXPECT_NEAR(evaluated(checkpoint, 2), evaluated(checkpoint), 1e-12);
  const Words asked{"--prompt", "ka", "--greedy", "--tokens", "12"};
  const Result one = run(with({"generate", checkpoint}, asked)), other = run(with({"generate", single_rank}, asked));
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, other.out);
}

TEST(multi_token, mtp_modules_are_added_to_a_trained_model) {
  const Folder folder;
  const Words start{"--init-from", Material::get().trained(), "train.steps=1", "train.precision=fp32"};
  const Result refused = run(Material::get().train(folder / "x", with(ahead, start)));
  EXPECT_EQ(refused.code, 78) << refused.out;
  EXPECT_NE(refused.err.find("train.init_head=new"), std::string::npos) << refused.err;
  const Result r = run(Material::get().train(folder / "new", with(ahead, with(start, {"train.init_head=new"}))));
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("new: mtp.0.enorm.weight"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("left out: none"), std::string::npos) << r.out;
  const auto step = metrics(folder / "new", "step").at(0);
  EXPECT_LT(step["loss"].get<double>(), losses(Material::get().output()).at(1) - 0.5) << "the model's own head is kept";
  EXPECT_NEAR(step["mtp_losses"][0].get<double>(), std::log(300.), 1.5) << "loss of untrained MTP modules";
}

}  // namespace

}  // namespace gyr::testing::multi_token_suite
