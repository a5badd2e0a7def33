// SPDX-License-Identifier: BSD-3-Clause
// Tests of preference training (DPO) and reward models with the program: data build --pairs, reference log-probabilities (eval
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

constexpr int pairs_in_data = 120;

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
    for (int i = 0; i < pairs_in_data; ++i) {
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
    Words words{"eval",        checkpoint,  "--objective", "preference",  "--data",
                prefix,        "--length",  "64",          "--precision", "fp64",
                "--overwrite", "--records", records,       "--json",      folder / "summary.json"};
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

TEST(preference, data_build_suggests_deck_of_pairs) {
  const std::string& out = material().built.out;
  for (const char* text : {"in the deck: data.prefixes=[", "data.order=documents data.documents=separate train.objective=preference",
                           "train.objective=reward", "suggested:   train.steps="})
    EXPECT_NE(out.find(text), std::string::npos) << text << "\n" << out;
  EXPECT_EQ(out.find("model.vocab_size"), std::string::npos) << out;
}

TEST(preference, log_probabilities_are_the_same_on_any_grid) {
  ASSERT_EQ(material().evaluated.code, 0) << material().evaluated.out << material().evaluated.err;
  const auto single_rank = by_pair(material().reference);
  EXPECT_EQ(single_rank.size(), std::size_t(pairs_in_data));
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

// Pairs without a file of reference log-probabilities, and a run in which models.reference scores them.
struct ScoredPairs {
  Folder folder;
  fs::path prefix = folder / "bare";

  ScoredPairs() {
    for (const char* file : {".bin", ".idx", ".json", "_mask.bin", "_mask.idx"})
      if (fs::exists(material().prefix.string() + file)) fs::copy_file(material().prefix.string() + file, prefix.string() + file);
  }
  Words learning(const fs::path& output, const Words& more = {}) const {
    Words words{"data.prefixes=[" + prefix.string() + "]", "models.reference.init_from=" + Material::get().trained().string()};
    words.insert(words.end(), more.begin(), more.end());
    return material().learning(output, words);
  }
};

TEST(preference, eval_without_reference_file_compares_with_zero) {
  const ScoredPairs pairs;
  const Result r = run({"eval", Material::get().trained(), "--objective", "preference", "--data", pairs.prefix, "--length", "64", "--precision",
                        "fp64", "--overwrite", "--json", pairs.folder / "summary.json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("bare_reference.jsonl does not exist: loss, accuracy and margin are relative to a reference"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("gyrfalcon eval "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find(" --objective preference --data " + (pairs.folder / "bare").string() + " --length "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find(" --records " + (pairs.folder / "bare_reference.jsonl").string()), std::string::npos) << r.out;
  double preferred = 0, difference = 0;  // of the records, which hold ln p of both texts
  const auto records = by_pair(material().reference);
  for (const auto& [pair, record] : records) {
    const double more = double(record.at("chosen")) - double(record.at("rejected"));
    preferred += more > 0 ? 1 : 0, difference += more;
  }
  const Json results = json_in(pairs.folder / "summary.json").at("results");
  EXPECT_NEAR(double(results.at("accuracy")), preferred / double(records.size()), 1e-12);
  EXPECT_NEAR(double(results.at("margin")) / (difference / double(records.size())), 0.1, 1e-9) << "beta is 0.1 by default";
}

// A layout of the trained model and one of its reference.
struct Layouts {
  int ranks;
  Words words;
};

TEST(preference, reference_in_the_run_equals_stored_log_probabilities) {
  ASSERT_EQ(material().evaluated.code, 0);
  const ScoredPairs pairs;
  const Words steps{"train.steps=12", "train.eval_every=6", "data.split=\"4,1,0\"", "train.global_batch_size=4", "train.micro_batch_size=1"};
  const Folder folder;
  ASSERT_EQ(run(material().learning(folder / "stored", steps)).code, 0);
  const auto stored = losses(folder / "stored");
  const auto validated = metrics(folder / "stored", "validation");
  const std::vector<Layouts> all{
      {0, {}},
      {0, {"models.reference.micro_batch_size=2"}},
      {2, {"parallel.data=2", "models.reference.tensor=2"}},
      {2, {"parallel.data=2", "parallel.shard=weights"}},
      {2, {"parallel.tensor=2", "parallel.sequence=true", "models.reference.ranks=1", "models.reference.tensor=1"}},
      {2, {"parallel.context=2", "models.reference.context=1"}},
      {2, {"parallel.pipeline=2", "models.reference.pipeline=1", "models.reference.context=2"}},
      {4, {"parallel.tensor=2", "models.reference.ranks=0,3", "models.reference.pipeline=2", "models.reference.tensor=1"}}};
  for (const auto& [ranks, words] : all) {
    const fs::path output = folder / "scored";
    fs::remove_all(output);
    Words more = steps;
    more.insert(more.end(), words.begin(), words.end());
    const Result r = run(pairs.learning(output, more), {.ranks = ranks});
    std::string text;
    for (const std::string& word : words) text += word + " ";
    ASSERT_EQ(r.code, 0) << text << r.out << r.err;
    const auto found = losses(output);
    ASSERT_EQ(found.size(), stored.size());
    for (const auto& [step, loss] : stored) EXPECT_NEAR(found.at(step), loss, 1e-9) << text << "step " << step;
    const auto here = metrics(output, "validation");
    ASSERT_EQ(here.size(), validated.size());
    for (std::size_t i = 0; i < here.size(); ++i)
      for (const char* key : {"loss", "accuracy", "margin"}) EXPECT_NEAR(double(here[i].at(key)), double(validated[i].at(key)), 1e-9) << text << key;
  }
}

// Text between the words and the next separator.
std::string after(const std::string& text, const std::string& words, const char* separators) {
  const auto at = text.find(words);
  if (at == text.npos) return "";
  const auto begin = text.find_first_not_of(' ', at + words.size());
  return text.substr(begin, text.find_first_of(separators, begin) - begin);
}

TEST(preference, planned_memory_includes_the_reference) {
  const ScoredPairs pairs;
  for (const Words& layout : {Words{"parallel.data=2"}, {"parallel.tensor=2", "models.reference.ranks=0", "models.reference.tensor=1"}}) {
    const Folder folder;
    Words more{"train.steps=1"};
    more.insert(more.end(), layout.begin(), layout.end());
    const Result trained = run(pairs.learning(folder / "run", more), {.ranks = 2});
    ASSERT_EQ(trained.code, 0) << trained.out << trained.err;
    more.insert(more.end(), {"--dry-run", "--ranks", "2"});
    const Result planned = run(pairs.learning(folder / "none", more));
    ASSERT_EQ(planned.code, 0) << planned.out << planned.err;
    const std::string memory = after(planned.out, "\nmemory ", "o\n");
    EXPECT_FALSE(memory.empty()) << planned.out;
    EXPECT_EQ(after(trained.out, "maximum memory per rank ", "\n") + " ", memory) << planned.out;
    EXPECT_NE(planned.out.find("weights of models.reference"), std::string::npos) << planned.out;
    Words limited = more;
    limited.erase(std::find(limited.begin(), limited.end(), "--dry-run"), limited.end());
    limited.push_back("memory.device_bytes=100000");
    EXPECT_EQ(run(pairs.learning(folder / "limited", limited), {.ranks = 2}).code, 78);
  }
}

TEST(preference, resumed_run_needs_the_same_reference) {
  const ScoredPairs pairs;
  const Folder folder;
  const fs::path reference = folder / "reference";
  fs::copy(Material::get().trained(), reference, fs::copy_options::recursive);
  const auto learning = [&](const char* output, int steps, const Words& more = {}) {
    Words words{"models.reference.init_from=" + reference.string(), fmt::format("train.steps={}", steps), "checkpoint.every=4",
                "optimizer.decay_steps=8"};
    words.insert(words.end(), more.begin(), more.end());
    return run(pairs.learning(folder / output, words), {.ranks = 2});
  };
  ASSERT_EQ(learning("straight", 8).code, 0);
  ASSERT_EQ(learning("resumed", 4).code, 0);
  const Result again = learning("resumed", 8, {"--resume"});
  ASSERT_EQ(again.code, 0) << again.out << again.err;
  expect_bitwise_equal_runs(folder / "straight", folder / "resumed", 8);
  fs::remove_all(reference);
  fs::copy(Material::checkpoint(folder / "straight", 8), reference, fs::copy_options::recursive);
  const Result changed = learning("resumed", 9, {"--resume"});
  EXPECT_EQ(changed.code, 78) << changed.out << changed.err;
  EXPECT_NE((changed.out + changed.err).find("models.reference: " + reference.string() + " has other weights since step_00000008"), std::string::npos)
      << changed.out << changed.err;
  EXPECT_EQ(learning("resumed", 9, {"--resume", "--accept-changes"}).code, 0);
}

TEST(preference, wrong_further_models_are_refused) {
  const ScoredPairs pairs;
  const Folder folder;
  const std::string trained = Material::get().trained().string();
  ASSERT_EQ(run(Material::get().train(folder / "wide", {"train.steps=1", "model.vocab_size=320"})).code, 0);
  const auto expect_output = [&](const Words& more, int code, const std::string& text) {
    const Result r = run(pairs.learning(folder / "never", more), {.ranks = 2});
    EXPECT_EQ(r.code, code) << r.out << r.err;
    EXPECT_NE((r.out + r.err).find(text), std::string::npos) << r.out << r.err;
    EXPECT_FALSE(fs::exists(folder / "never")) << "a refused run has no output folder";
  };
  expect_output({"models.refrence.init_from=" + trained}, 78,
                "models.refrence: train.objective = preference reads only reference; did you mean `reference`?");
  expect_output({"models.reference.init_from=" + (folder / "wide").string()}, 78, "has a vocabulary of 320 tokens, and the trained model one of 300");
  expect_output({"models.reference.init_from=" + (folder / "missing").string()}, 66, "missing");
  expect_output({"train.seq_length=2"}, 78, "fits a window of 3 tokens; the shortest needs train.seq_length=");
  expect_output({"models.reference.ranks=0-9"}, 78, "models.reference.ranks = 0-9: the run has ranks 0 to 1");
  expect_output({"models.reference.ranks=1", "models.reference.tensor=2"}, 78, "models.reference on 1 rank (1)");
  expect_output({"models.reference.precision=fp8"}, 78, "models.reference.precision");
  expect_output({"models.reference.widht=3"}, 78, "models.reference.widht");
  expect_output({"models.reference=3"}, 78, "models.reference");
  expect_output({"parallel.plan=auto"}, 78, "parallel.plan = auto searches a layout for the trained model alone");
  expect_output({"train.objective=next_token"}, 78, "models.reference: train.objective = next_token reads no further model");
}

// A run that trains a reward model on the pairs, which needs no file of reference log-probabilities.
Words rewarding(const ScoredPairs& pairs, const fs::path& output, const Words& more = {}) {
  Words words{"data.prefixes=[" + pairs.prefix.string() + "]", "train.objective=reward", "train.init_head=new", "train.reward.center=0.01"};
  words.insert(words.end(), more.begin(), more.end());
  return material().learning(output, words);
}

TEST(preference, reward_model_learns_the_same_on_any_grid) {
  const ScoredPairs pairs;
  std::map<int, double> single_rank;
  for (const Words& grid : {Words{}, {"parallel.tensor=2", "parallel.sequence=true"}, {"parallel.context=2"}, {"parallel.pipeline=2"}}) {
    const Folder folder;
    Words more = grid;
    more.push_back("train.steps=30");
    const Result r = run(rewarding(pairs, folder.path(), more), {.ranks = grid.empty() ? 0 : 2});
    ASSERT_EQ(r.code, 0) << r.out << r.err;
    const auto found = losses(folder.path());
    if (single_rank.empty()) single_rank = found;
    EXPECT_LT(found.at(30), 0.7 * found.at(1));
    for (const auto& [step, loss] : single_rank) EXPECT_NEAR(found.at(step), loss, 1e-9) << "step " << step;
  }
}

TEST(preference, reward_model_is_scored_and_exported) {
  const ScoredPairs pairs;
  const Folder folder;
  ASSERT_EQ(run(rewarding(pairs, folder / "run", {"train.steps=30"})).code, 0);
  const fs::path checkpoint = Material::checkpoint(folder / "run", 30);
  const auto score = [&](const fs::path& model, const char* file, int ranks = 0, const Words& more = {}) {
    Words words{"eval", model,         "--data",    pairs.prefix,  "--length", "64",           "--precision",
                "fp64", "--overwrite", "--records", folder / file, "--json",   folder / "json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result r = run(words, {.ranks = ranks});
    EXPECT_EQ(r.code, 0) << r.out << r.err;
    EXPECT_EQ(r.out.find("perplexity"), std::string::npos) << "a reward model predicts no tokens: " << r.out;
    return by_pair(folder / file);
  };
  const auto scores = score(checkpoint, "one");
  EXPECT_EQ(scores.size(), std::size_t(pairs_in_data));
  EXPECT_GT(double(json_in(folder / "json").at("results").at("accuracy")), 0.9);
  const Result exported = run({"export-hf", checkpoint, folder / "hf"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_NE(exported.err.find("transformers has no class FalconH1ForSequenceClassification"), std::string::npos) << exported.err;
  EXPECT_EQ(json_in(folder / "hf/config.json").at("id2label").size(), 1u);
  for (const auto& [pair, record] : score(folder / "hf", "two", 2, {"--tensor", "2"}))
    for (const char* key : {"chosen", "rejected"}) EXPECT_NEAR(double(scores.at(pair).at(key)), double(record.at(key)), 1e-10) << key << pair;
  const Result generated = run({"generate", checkpoint, "--prompt", "ka", "--tokens", "3"});
  EXPECT_EQ(generated.code, 78) << generated.out << generated.err;
  EXPECT_NE((generated.out + generated.err).find("no output for tokens"), std::string::npos) << generated.out << generated.err;
  EXPECT_EQ(run({"eval", checkpoint, "--data", pairs.prefix, "--logits", folder / "l.h5"}).code, 64);
  EXPECT_EQ(run({"export-gguf", checkpoint, folder / "m.gguf"}).code, 78);
}

TEST(preference, models_that_are_no_reward_models_are_refused) {
  const ScoredPairs pairs;
  const Folder folder;
  ASSERT_EQ(run(rewarding(pairs, folder / "run", {"train.steps=1"})).code, 0);
  ASSERT_EQ(run({"export-hf", Material::checkpoint(folder / "run", 1), folder / "hf"}).code, 0);
  Json config = json_in(folder / "hf/config.json");
  config["id2label"]["1"] = "LABEL_1";
  put_contents(folder / "hf/config.json", config.dump());
  const Result two = run({"eval", folder / "hf", "--data", pairs.prefix});
  EXPECT_EQ(two.code, 65) << two.err;
  EXPECT_NE((two.out + two.err).find("has 2 classes; a reward model has one label"), std::string::npos) << two.out << two.err;
  const Result headless = run(rewarding(pairs, folder / "b", {"train.steps=1", "train.init_head=stored"}));
  EXPECT_EQ(headless.code, 78) << headless.out << headless.err;
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
