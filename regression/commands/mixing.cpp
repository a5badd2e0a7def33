// SPDX-License-Identifier: BSD-3-Clause
// Runs that read two corpora in stages, with an epoch cap and fill-in-the-middle: resume, other ranks, and the reports of
// train, plan and data info.
#include <gtest/gtest.h>

#include <cmath>

#include "regression/support/material.hpp"

namespace gyr::testing::mixing_suite {

namespace fs = std::filesystem;

namespace {

constexpr int steps = 12;

// A deck with the corpus of the material and a small one, which ends within the second stage.
struct TwoCorpora {
  Folder folder;
  fs::path small = folder / "small", deck = folder / "deck.yaml";

  TwoCorpora() {
    const Material& m = Material::get();
    const std::string text = contents(m.text());
    put_contents(folder / "small.txt", text.substr(text.size() / 2, 3500));
    const Result r = run({"data", "build", folder / "small.txt", small, "--tokenizer", m.tokenizer(), "--documents", "separator"});
    ensure(r.code == 0, "{}", output_of(r));
    put_contents(deck, changed(contents(m.deck()), m.prefix(), small));
  }
  static std::string changed(std::string text, const fs::path& large, const fs::path& small) {
    const auto replace = [&](const std::string& was, const std::string& is) { text.replace(text.find(was), was.size(), is); };
    replace("prefixes: [" + large.string() + "]",
            fmt::format(
                "prefixes: [{}, {}]\n  weights: [3, 1]\n  stages: [\"40 samples: 1 3\"]\n  max_epochs: [0, 1]\n  fim: {{rate: 0.5, tokens: [\"!\", "
                "\"#\", \"?\"]}}",
                large.string(), small.string()));
    replace("steps: 60", fmt::format("steps: {}", steps));
    replace("lr: 1e-2", "lr: 1e-2\n  schedule: constant");
    return text;
  }
  Words train(const fs::path& output, const Words& more = {}) const {
    Words words{"train", deck, "output.folder=" + output.string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

const TwoCorpora& two_corpora() {
  static const TwoCorpora all;
  return all;
}

}  // namespace

TEST(mixing, resumed_and_distributed_runs_read_the_same_samples) {
  const TwoCorpora& t = two_corpora();
  const fs::path full = t.folder / "full", parts = t.folder / "parts", ranks = t.folder / "ranks";
  const Result whole = run(t.train(full));
  ASSERT_EQ(whole.code, 0) << output_of(whole);
  for (const char* const text : {"stage 2 of the data begins at sample 40", "data.max_epochs", "data up to step 12: ", "1 epochs of "})
    EXPECT_NE(whole.out.find(text), std::string::npos) << text << "\n" << whole.out;
  for (const Words& more : {Words{"train.steps=7"}, Words{"--resume"}}) {
    const Result r = run(t.train(parts, more));
    ASSERT_EQ(r.code, 0) << output_of(r);
  }
  expect_bitwise_equal_runs(full, parts, steps);
  Options two;
  two.ranks = 2;
  const Result distributed = run(t.train(ranks, {"parallel.data=2"}), two);
  ASSERT_EQ(distributed.code, 0) << output_of(distributed);
  const auto a = losses(full), b = losses(ranks);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [step, loss] : a) EXPECT_NEAR(loss, b.at(step), 1e-3) << step;
}

TEST(mixing, plan_and_info_state_epochs_per_stage) {
  const TwoCorpora& t = two_corpora();
  const Result plan = run({"plan", t.deck}), info = run({"data", "info", t.deck});
  ASSERT_EQ(plan.code, 0) << output_of(plan);
  ASSERT_EQ(info.code, 0) << output_of(info);
  EXPECT_NE(plan.out.find("Data that the run reads"), std::string::npos) << plan.out;
  for (const char* const row : {"0 to 39", "40 to 95"}) {
    EXPECT_NE(info.out.find(row), std::string::npos) << info.out;
    EXPECT_NE(plan.out.find(row), std::string::npos) << plan.out;
  }
  EXPECT_NE(info.out.find(t.small.string()), std::string::npos) << info.out;
}

TEST(mixing, unsuitable_mixtures_are_refused_with_a_remedy) {
  const TwoCorpora& t = two_corpora();
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"data.max_epochs=[1, 1]", {"data.max_epochs", "train.steps="}},
      {"data.max_epochs=[1]", {"data.max_epochs has 1 values for 2 prefixes"}},
      {"data.stages=[\"40 steps: 1 3\"]", {"'40 steps: 1 3'", "tokens or samples"}},
      {"data.stages=[\"0: 1 3\"]", {"data.weights", "'0: 1 3'"}},
      {"data.fim.tokens=[\"!\", \"#\", none]", {"data.fim.tokens", "none"}},
      {"data.order=megatron", {"data.stages", "megatron"}},
  };
  for (const auto& [change, texts] : cases) {
    const Result r = run(t.train(t.folder / "refused", {change, "train.steps=100000"}));
    EXPECT_EQ(r.code, 78) << change << output_of(r);
    for (const char* const text : texts) EXPECT_NE((r.out + r.err).find(text), std::string::npos) << text << "\n" << output_of(r);
  }
}

}  // namespace gyr::testing::mixing_suite
