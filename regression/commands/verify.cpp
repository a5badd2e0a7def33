// SPDX-License-Identifier: BSD-3-Clause
// Tests of `gyrfalcon verify`: valid layouts are confirmed to equal one rank within a minute, and layouts that train
// refuses get the same error.
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/base/error.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/process.hpp"

namespace gyr::testing::verify_suite {

namespace {

const std::string deck = GYR_SOURCE_DIR "/input/falcon-h1-tiny-90m.yaml";

Words verify(const Words& changes, const std::string& of = deck) {
  Words words{"verify", of, "output.folder=/nowhere/to/be/written"};
  words.insert(words.end(), changes.begin(), changes.end());
  return words;
}

// Lines that start with `begin`.
Words lines_with(const std::string& text, const std::string& begin) {
  Words found;
  for (const std::string& line : lines_of(text))
    if (line.starts_with(begin)) found.push_back(line);
  return found;
}

void expect_verified(const Result& r) {
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(last_line_of(r.out), "RUN OK");
  EXPECT_LT(r.seconds, 60 * slowness);
  for (const char* law :
       {"loss ", "gradient norm ", "loss after the update ", "feed_forward.down_proj ", "grid ", "train.seq_length ", "slowest rank: "})
    EXPECT_FALSE(lines_with(r.out, law).empty()) << law << "\n" << r.out;
}

TEST(verify, verify_accepts_layouts_of_two_ranks) {
  for (const Words& changes :
       {Words{"parallel.tensor=2", "parallel.sequence=true", "model.vocab_size=32769"},
        Words{"parallel.context=2", "data.documents=separate", "train.seq_length=501"},
        Words{"parallel.expert=2", "model.pattern=PEW-E", "parallel.shard=gradients"},
        Words{"parallel.shard=weights", "optimizer.frozen=[\"model.layers.0.*\", \"*.k_proj.weight\"]", "model.tie_word_embeddings=true"}}) {
    const Result r = run(verify(changes), {.ranks = 2});
    expect_verified(r);
    EXPECT_EQ(lines_with(r.out, "slowest link: ").size(), 1u) << r.out;
  }
}

TEST(verify, verify_launches_its_own_ranks) {
  const Result r = run(verify({"-n", "4", "parallel.pipeline=2", "parallel.virtual_stages=2", "model.pattern=PM*-PM*-", "parallel.tensor=2",
                               "activation.recompute=full", "train.precision=fp32"}));
  expect_verified(r);
  for (const char* name : {"tensor ", "pipeline ", "embedding "}) EXPECT_FALSE(lines_with(r.out, name).empty()) << name << "\n" << r.out;
}

TEST(verify, verify_accepts_separate_mixer_ranks_of_unequal_number) {
  const Result r = run(verify({"-n", "3", "parallel.tensor=3", "parallel.mixer=apart", "parallel.attention_ranks=1", "parallel.sequence=true",
                               "model.mlp.intermediate_size=768"}));
  expect_verified(r);
  EXPECT_FALSE(lines_with(r.out, "attention, ssm ").empty()) << r.out;
}

// In one pipeline stage, tensor-parallel ranks share groups of Mamba heads; in the other stage there are no heads.
TEST(verify, verify_accepts_pipeline_stages_of_different_layer_types) {
  const Result r = run(verify({"-n", "8", "parallel.tensor=4", "parallel.pipeline=2", "model.pattern=--MM", "parallel.layers=[2,2]",
                               "model.mamba.num_heads=8", "model.mamba.num_groups=2", "model.mamba.norm=gate_first"}));
  expect_verified(r);
}

TEST(verify, verify_accepts_deck_of_a_published_model) {
  const Result r = run(verify({"data.order=documents", "data.documents=separate"}, GYR_SOURCE_DIR "/input/falcon-h1-1.5b-deep.yaml"), {.ranks = 4});
  expect_verified(r);
  EXPECT_EQ(lines_with(r.out, "gradient error against double").size(), 1u) << r.out;  // printed because the deck uses bf16
}

TEST(verify, verify_accepts_an_encoder_decoder_model) {
  const std::string t5 = GYR_SOURCE_DIR "/input/t5-small.yaml";
  expect_verified(run(verify({"-n", "4", "parallel.tensor=2", "parallel.context=2"}, t5)));
  expect_verified(run(verify({"-n", "4", "parallel.pipeline=2", "parallel.tensor=2", "parallel.sequence=true"}, t5)));
}

TEST(verify, verify_accepts_one_rank) { expect_verified(run(verify({}))); }

TEST(verify, verify_refuses_what_train_refuses) {
  const Folder folder;
  for (const Words& changes : {Words{"parallel.tensor=3"}, Words{"parallel.tensor=2", "parallel.pipeline=2"}, Words{"parallel.virtual_stages=2"},
                               Words{"parallel.tensr=2"}, Words{"train.global_batch_size=3"}, Words{"optimizer.frozen=[nothing]"}}) {
    Words train = verify(changes);
    train.front() = "train";
    const Result a = run(verify(changes), {.ranks = 2}), b = run(train, {.ranks = 2});
    EXPECT_EQ(a.code, int(Exit::config)) << a.out << a.err;
    EXPECT_EQ(a.code, b.code);
    EXPECT_EQ(a.err, b.err);
    EXPECT_EQ(last_line_of(a.out), last_line_of(b.out));
  }
  const Result missing = run(verify({}, folder / "none.yaml"));
  EXPECT_EQ(missing.code, int(Exit::missing)) << missing.err;
}

TEST(verify, verify_refuses_wrong_rank_counts_and_launchers) {
  EXPECT_EQ(run(verify({"-n", "0"})).code, int(Exit::usage));
  EXPECT_EQ(run(verify({"-n", "3"}), {.ranks = 2}).code, int(Exit::usage));
  const Result r = run(verify({"-n", "2", "--launcher", "no-such-launcher"}));
  EXPECT_EQ(r.code, int(Exit::device));
  EXPECT_NE(r.err.find("no-such-launcher cannot be started"), std::string::npos) << r.err;
  EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 69")) << r.out;
}

}  // namespace

}  // namespace gyr::testing::verify_suite
