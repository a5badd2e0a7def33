// SPDX-License-Identifier: BSD-3-Clause
// Tests of preference training (DPO) with the program: data build --pairs, reference log-probabilities (eval
// --objective preference --records), training (train.objective preference) and evaluation, equal on any grid.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "regression/support/material.hpp"
#include "regression/support/seed.hpp"

namespace gyr::testing::preference_suite {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

constexpr int pairs = 120;

// Pairs whose chosen answers all end in the same word, and whose rejected answers end in another word.
struct Pairs {
  Folder folder;
  fs::path prefix = folder / "pairs", reference = folder / "pairs_reference.jsonl";
  Result built, evaluated;

  Pairs() {
    std::mt19937 random(seed_of_run());
    const Words words{"ka", "ren", "qua", "mi", "tu", "or"};
    const auto text = [&] {
      std::string text;
      for (unsigned n = 1 + random() % 3; n > 0; --n) text += " " + words[random() % words.size()];
      return text;
    };
    std::string lines;
    for (int i = 0; i < pairs; ++i) {
      Json line{{"chosen", text() + " sha"}, {"rejected", text() + " pe"}};
      if (i % 4 > 0) line["prompt"] = text();
      lines += line.dump() + "\n";
    }
    put_contents(prefix.string() + ".jsonl", lines);
    built = build(prefix);
    evaluated = eval(Material::get().trained(), reference);
  }
  Result build(const fs::path& to, int ranks = 0, const Words& more = {}) const {
    Words words{"data", "build", prefix.string() + ".jsonl", to, "--tokenizer", Material::get().tokenizer(), "--pairs"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, {.ranks = ranks});
  }
  Result eval(const fs::path& checkpoint, const fs::path& records, const Words& more = {}, int ranks = 0) const {
    Words words{"eval", checkpoint,    "--objective", "preference", "--data", prefix,   "--length",
                "64",   "--precision", "fp64",        "--records",  records,  "--json", folder / "summary.json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, {.ranks = ranks});
  }
  Json results() const { return json_in(folder / "summary.json").at("results"); }
  Words learning(const fs::path& output, const Words& more = {}) const {
    Words words{"data.prefixes=[" + prefix.string() + "]",
                "data.order=documents",
                "data.documents=separate",
                "data.split=\"1\"",
                "train.objective=preference",
                "train.preference.beta=0.5",
                "train.seq_length=64",
                "train.init_from=" + Material::get().trained().string(),
                "train.precision=fp64"};
    words.insert(words.end(), more.begin(), more.end());
    return Material::get().train(output, words);
  }
};

const Pairs& material() {
  static const Pairs pairs;
  return pairs;
}

std::map<int, Json> by_pair(const fs::path& records) {
  std::map<int, Json> all;
  for (const std::string& line : lines_of(contents(records)))
    if (Json::parse(line).contains("model")) continue;
    else if (const Json record = Json::parse(line); !all.emplace(int(record.at("pair")), record).second) ADD_FAILURE() << "pair twice: " << line;
  return all;
}

}  // namespace

TEST(preference, token_files_of_pairs_ignore_the_rank_count) {
  ASSERT_EQ(material().built.code, 0) << material().built.out << material().built.err;
  const Folder folder;
  ASSERT_EQ(material().build(folder / "p", 2).code, 0);
  for (const char* file : {".bin", ".idx", "_mask.bin", "_mask.idx"})
    EXPECT_EQ(contents((folder / "p").string() + file), contents(material().prefix.string() + file)) << file;
  put_contents((folder / "p").string() + "_reference.jsonl", "of other pairs\n");
  ASSERT_EQ(material().build(folder / "p", 0, {"--overwrite"}).code, 0);
  EXPECT_FALSE(fs::exists((folder / "p").string() + "_reference.jsonl"));
}

TEST(preference, log_probabilities_are_the_same_on_any_grid) {
  ASSERT_EQ(material().evaluated.code, 0) << material().evaluated.out << material().evaluated.err;
  const auto single_rank = by_pair(material().reference);
  EXPECT_EQ(single_rank.size(), std::size_t(pairs));
  for (const Words& grid : {Words{"--tensor", "1"}, {"--tensor", "2", "--pipeline", "2"}, {"--tensor", "4"}}) {
    const Folder folder;
    const Result r = material().eval(Material::get().trained(), folder / "records", grid, 4);
    ASSERT_EQ(r.code, 0) << r.out << r.err;
    const auto many = by_pair(folder / "records");
    ASSERT_EQ(many.size(), single_rank.size());
    for (const auto& [pair, record] : single_rank)
      for (const char* key : {"chosen", "rejected"}) EXPECT_NEAR(double(many.at(pair).at(key)), double(record.at(key)), 1e-10) << key << pair;
  }
}

TEST(preference, dpo_learns_and_losses_agree_on_any_grid) {
  ASSERT_EQ(material().evaluated.code, 0);
  std::map<int, double> single_rank;
  for (const Words& grid : {Words{}, {"parallel.tensor=2", "parallel.sequence=true"}, {"parallel.context=2"}, {"parallel.pipeline=2"}}) {
    const Folder folder;
    Words more = grid;
    more.insert(more.end(), {"train.steps=30"});
    const Result r = run(material().learning(folder.path(), more), {.ranks = grid.empty() ? 0 : 2});
    ASSERT_EQ(r.code, 0) << r.out << r.err;
    const auto found = losses(folder.path());
    EXPECT_NEAR(found.at(1), std::log(2.0), 1e-9) << "the model still equals the reference model";
    EXPECT_NE(r.out.find("the reference model is " + Material::get().trained().string() + " (XXH3 "), std::string::npos) << r.out;
    if (single_rank.empty()) {
      single_rank = found;
      EXPECT_LT(found.at(30), 0.5 * std::log(2.0));
      const Result after = material().eval(Material::checkpoint(folder.path(), 30), folder / "records");
      ASSERT_EQ(after.code, 0) << after.out << after.err;
      EXPECT_GT(double(material().results().at("accuracy")), 0.9) << after.out;
      EXPECT_NE(after.out.find("accuracy "), std::string::npos) << after.out;
      EXPECT_EQ(run({"generate", Material::checkpoint(folder.path(), 30), "--prompt", "ka", "--tokens", "3"}).code, 0);
      EXPECT_EQ(run({"export-hf", Material::checkpoint(folder.path(), 30), folder / "hf"}).code, 0) << "exported as the class of the original model";
    }
    for (const auto& [step, loss] : single_rank) EXPECT_NEAR(found.at(step), loss, 1e-9) << "step " << step;
  }
}

TEST(preference, validation_accuracy_and_margin_agree_on_any_grid) {
  ASSERT_EQ(material().evaluated.code, 0);
  std::vector<Json> single_rank;
  for (const Words& grid : {Words{}, {"parallel.tensor=2"}, {"parallel.context=2"}, {"parallel.data=2"}}) {
    const Folder folder;
    Words more{"train.steps=20", "train.eval_every=10", "data.split=\"4,1,0\""};
    more.insert(more.end(), grid.begin(), grid.end());
    const Result r = run(material().learning(folder.path(), more), {.ranks = grid.empty() ? 0 : 2});
    ASSERT_EQ(r.code, 0) << r.out << r.err;
    EXPECT_NE(r.out.find(", margin "), std::string::npos) << r.out;
    const auto found = metrics(folder.path(), "validation");
    ASSERT_EQ(found.size(), 2u);
    if (single_rank.empty()) {
      single_rank = found;
      EXPECT_GT(double(found[1].at("accuracy")), 0.8);
      EXPECT_GT(double(found[1].at("margin")), 0.1);
    }
    for (std::size_t i = 0; i < found.size(); ++i)
      for (const char* key : {"loss", "accuracy", "margin"})
        EXPECT_NEAR(double(found[i].at(key)), double(single_rank[i].at(key)), 1e-9) << key << " " << i;
  }
}

TEST(preference, wrong_preference_data_and_options_are_refused) {
  const Folder folder;
  const fs::path kept = folder / "kept";
  ASSERT_EQ(material().build(kept).code, 0);
  const auto expect_output = [](const Result& r, int code, const std::string& words) {
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_NE((r.out + r.err).find(words), std::string::npos) << r.out << r.err;
  };
  expect_output(run(material().learning(folder / "a", {"train.steps=1", "data.prefixes=[" + kept.string() + "]"})), 66,
                "kept_reference.jsonl: does not exist");
  expect_output(run(material().learning(folder / "b", {"train.steps=1", "data.documents=joined"})), 78, "data.documents: separate");
  expect_output(run({"eval", Material::get().trained(), "--objective", "classify", "--data", kept}), 64, "--objective classify");
  expect_output(run({"eval", Material::get().trained(), "--objective", "preference", "--text", Material::get().text()}), 64, "token files");
  put_contents(folder / "wrong.jsonl", "{\"chosen\": \"a\"}\n");
  expect_output(run({"data", "build", folder / "wrong.jsonl", folder / "w", "--tokenizer", Material::get().tokenizer(), "--pairs"}), 65,
                "wrong.jsonl:1");
  expect_output(
      run({"data", "build", folder / "wrong.jsonl", folder / "w", "--tokenizer", Material::get().tokenizer(), "--pairs", "--classes", "a,b"}), 64,
      "--pairs");
}

}  // namespace gyr::testing::preference_suite
