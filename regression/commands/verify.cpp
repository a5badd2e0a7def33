// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon verify: layouts that compute what one rank does are told so within a minute, and what train refuses is refused in its words.
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

// Lines that begin so.
Words lines_with(const std::string& text, const std::string& begin) {
  Words found;
  for (const std::string& line : lines_of(text))
    if (line.starts_with(begin)) found.push_back(line);
  return found;
}

void expect_proved(const Result& r) {
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(last_line_of(r.out), "RUN OK");
  EXPECT_LT(r.seconds, 60 * slowness);
  for (const char* law :
       {"loss ", "gradient norm ", "loss after the update ", "feed_forward.down_proj ", "grid ", "train.seq_length ", "slowest rank: "})
    EXPECT_FALSE(lines_with(r.out, law).empty()) << law << "\n" << r.out;
}

TEST(verify, layouts_of_two_ranks) {
  for (const Words& changes :
       {Words{"parallel.tensor=2", "parallel.sequence=true", "model.vocab_size=32769"},
        Words{"parallel.context=2", "data.documents=separate", "train.seq_length=501"},
        Words{"parallel.expert=2", "model.pattern=PEW-E", "parallel.shard=gradients"},
        Words{"parallel.shard=weights", "optimizer.frozen=[\"model.layers.0.*\", \"*.k_proj.weight\"]", "model.tie_word_embeddings=true"}}) {
    const Result r = run(verify(changes), {.ranks = 2});
    expect_proved(r);
    EXPECT_EQ(lines_with(r.out, "slowest link: ").size(), 1u) << r.out;
  }
}

TEST(verify, starts_ranks_itself) {
  const Result r = run(verify({"-n", "4", "parallel.pipeline=2", "parallel.virtual_stages=2", "model.pattern=PM*-PM*-", "parallel.tensor=2",
                               "activation.recompute=full", "train.precision=fp32"}));
  expect_proved(r);
  for (const char* name : {"tensor ", "pipeline ", "embedding "}) EXPECT_FALSE(lines_with(r.out, name).empty()) << name << "\n" << r.out;
}

TEST(verify, mixers_apart_in_teams_of_unlike_size) {
  const Result r = run(verify({"-n", "3", "parallel.tensor=3", "parallel.mixer=apart", "parallel.attention_ranks=1", "parallel.sequence=true",
                               "model.mlp.intermediate_size=768"}));
  expect_proved(r);
  EXPECT_FALSE(lines_with(r.out, "attention, ssm ").empty()) << r.out;
}

// Ranks of one stage share groups of heads, those of the other nothing.
TEST(verify, stages_of_unlike_blocks) {
  const Result r = run(verify({"-n", "8", "parallel.tensor=4", "parallel.pipeline=2", "model.pattern=--MM", "parallel.layers=[2,2]",
                               "model.mamba.num_heads=8", "model.mamba.num_groups=2", "model.mamba.norm=gate_first"}));
  expect_proved(r);
}

TEST(verify, a_published_deck_as_it_is) {
  const Result r = run(verify({"data.order=documents", "data.documents=separate"}, GYR_SOURCE_DIR "/input/falcon-h1-1.5b-deep.yaml"), {.ranks = 4});
  expect_proved(r);
  EXPECT_EQ(lines_with(r.out, "gradient error against double").size(), 1u) << r.out;  // the deck is in bf16
}

TEST(verify, an_encoder_with_a_decoder) {
  const std::string t5 = GYR_SOURCE_DIR "/input/t5-small.yaml";
  expect_proved(run(verify({"-n", "4", "parallel.tensor=2", "parallel.context=2"}, t5)));
  expect_proved(run(verify({"-n", "4", "parallel.pipeline=2", "parallel.tensor=2", "parallel.sequence=true"}, t5)));
}

TEST(verify, one_rank_is_itself) { expect_proved(run(verify({}))); }

TEST(verify, refuses_what_train_refuses) {
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

TEST(verify, refuses_ranks_that_are_not_there) {
  EXPECT_EQ(run(verify({"-n", "0"})).code, int(Exit::usage));
  EXPECT_EQ(run(verify({"-n", "3"}), {.ranks = 2}).code, int(Exit::usage));
  const Result r = run(verify({"-n", "2", "--launcher", "no-such-launcher"}));
  EXPECT_EQ(r.code, int(Exit::usage));
  EXPECT_NE(r.err.find("no-such-launcher cannot be started"), std::string::npos) << r.err;
  EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 64")) << r.out;
}

}  // namespace

}  // namespace gyr::testing::verify_suite
