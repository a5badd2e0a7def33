// SPDX-License-Identifier: BSD-3-Clause
// Tests of encoder-decoder training (train.objective seq2seq) with the program: data build --source, training,
// evaluation, generation and export, with equal results on any grid.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "regression/support/material.hpp"
#include "regression/support/seed.hpp"

namespace gyr::testing::seq2seq_suite {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

std::string sorted(std::string digits) {
  std::sort(digits.begin(), digits.end());
  return digits;
}

// Pairs: the encoder input is a string of distinct digits, the target is the same digits sorted.
struct Pairs {
  static constexpr int count = 3000;
  Folder folder;
  fs::path prefix = folder / "pairs";
  Words unseen;  // encoder inputs that are not in the training data
  Result built;

  Pairs() {
    std::mt19937 random(seed_of_run());
    const auto digits = [&] {
      std::string all = "0123456789";
      std::shuffle(all.begin(), all.end(), random);
      return all.substr(0, 1 + random() % 5);
    };
    std::string lines;
    for (int i = 0; i < count; ++i) {
      const std::string source = digits();
      lines += Json{{"number", i}, {"asked", source}, {"answer", sorted(source)}}.dump() + "\n";
    }
    put_contents(prefix.string() + ".jsonl", lines);
    for (int i = 0; i < 30; ++i) unseen.push_back(digits());
    built = build(prefix);
  }
  Result build(const fs::path& to, int ranks = 0, const Words& more = {}) const {
    Words words{"data", "build", prefix.string() + ".jsonl", to, "--tokenizer", Material::get().tokenizer(), "--source", "asked", "--key", "answer"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, {.ranks = ranks});
  }
  // A model that T5's class can represent. Token 2 is the tokenizer's end-of-text token.
  Words learning(const fs::path& output, const Words& more = {}) const {
    Words words{"data.prefixes=[" + prefix.string() + "]",
                "data.order=documents",
                "data.split=\"98,2,0\"",
                "model.pattern=*-*->*X-*X-",
                "model.rms_norm_eps=1e-6",
                "model.attention.num_kv_heads=4",
                "model.attention.rotary_fraction=0",
                "model.attention.key_multiplier=2.8284271247461903",
                "model.attention.relative_bias.buckets=16",
                "model.attention.relative_bias.max_distance=32",
                "model.mlp.gated=false",
                "model.mlp.activation=relu",
                "train.objective=seq2seq",
                "train.seq2seq.end_token=2",
                "train.seq2seq.source_length=8",
                "train.seq_length=7",
                "train.precision=fp64",
                "checkpoint.every=0"};
    words.insert(words.end(), more.begin(), more.end());
    return Material::get().train(output, words);
  }
};

const Pairs& material() {
  static const Pairs pairs;
  return pairs;
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_message(const Result& r, int code, const std::string& words) {
  EXPECT_EQ(r.code, code) << r.out << r.err;
  EXPECT_NE((r.out + r.err).find(words), std::string::npos) << r.out << r.err;
}

// Texts that the model generates for these prompts.
Words written(const fs::path& model, const Words& prompts) {
  const Folder folder;
  std::string lines;
  for (const std::string& prompt : prompts) lines += prompt + "\n";
  const Result r = run(
      {"generate", model, "--batch", folder.write("prompts.txt", lines), "--greedy", "--tokens", "8", "--tokenizer", Material::get().tokenizer()});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  Words texts;
  for (const std::string& line : lines_of(r.out))
    if (const Json reply = Json::parse(line, nullptr, false); reply.is_object()) texts.push_back(reply.at("text"));
  return texts;
}

}  // namespace

TEST(seq2seq, token_files_of_pairs_ignore_the_rank_count) {
  ASSERT_EQ(material().built.code, 0) << material().built.out << material().built.err;
  EXPECT_NE(material().built.out.find("in 6000 documents"), std::string::npos) << material().built.out;
  const Folder folder;
  ASSERT_EQ(material().build(folder / "p", 2).code, 0);
  for (const char* file : {".bin", ".idx", "_mask.bin", "_mask.idx"})
    EXPECT_EQ(contents((folder / "p").string() + file), contents(material().prefix.string() + file)) << file;
}

TEST(seq2seq, small_model_learns_to_sort_digits) {
  ASSERT_EQ(material().built.code, 0);
  const Folder folder;
  const Result r = run(material().learning(folder.path(), {"train.steps=400", "train.global_batch_size=32", "train.micro_batch_size=32",
                                                           "train.precision=fp32", "train.eval_every=400", "train.eval_batches=1"}));
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("2940 pairs of an encoder input and a target text"), std::string::npos) << r.out;
  EXPECT_GT(double(metrics(folder.path(), "validation").back().at("accuracy")), 0.9);
  const fs::path trained = Material::checkpoint(folder.path(), 400);
  const Words texts = written(trained, material().unseen);
  ASSERT_EQ(texts.size(), material().unseen.size());
  int right = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) right += texts[i] == sorted(material().unseen[i]);
  EXPECT_GE(right, 25);

  const Result exported = run({"export-hf", trained, folder / "t5"});
  ASSERT_EQ(exported.code, 0) << exported.out << exported.err;
  EXPECT_EQ(json_in(folder / "t5" / "config.json").at("architectures").at(0), "T5ForConditionalGeneration");
  EXPECT_EQ(written(folder / "t5", material().unseen), texts);
  const auto loss = [&](const fs::path& model, int ranks, const Words& more) {
    Words words{"eval", model, "--data", material().prefix, "--length", "7", "--overwrite", "--json", folder / "summary.json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result r = run(words, {.ranks = ranks});
    EXPECT_EQ(r.code, 0) << r.out << r.err;
    const Json results = json_in(folder / "summary.json").at("results");
    EXPECT_EQ(int(results.at("sequences")), Pairs::count);
    EXPECT_GT(double(results.at("accuracy")), 0.9);
    return double(results.at("loss"));
  };
  const double single_rank = loss(trained, 0, {});
  EXPECT_NEAR(loss(trained, 2, {"--tensor", "2"}), single_rank, 1e-6);
  EXPECT_NEAR(loss(trained, 2, {"--tensor", "1"}), single_rank, 1e-6);
  EXPECT_NEAR(loss(folder / "t5", 0, {"--objective", "seq2seq"}), single_rank, 1e-6);
  EXPECT_NEAR(loss(folder / "t5", 0, {"--objective", "seq2seq", "--batch", "1"}), single_rank, 1e-6) << "texts without padding";
}

TEST(seq2seq, losses_agree_on_grids_and_after_resume) {
  ASSERT_EQ(material().built.code, 0);
  const Folder full;
  const Words six{"train.steps=6", "train.eval_every=3", "train.eval_batches=2"};
  ASSERT_EQ(run(material().learning(full.path(), six)).code, 0);
  const auto single_rank = losses(full.path());
  const auto validated = metrics(full.path(), "validation");
  ASSERT_EQ(single_rank.size(), 6u);
  ASSERT_EQ(validated.size(), 2u);
  for (const Words& grid :
       {Words{"parallel.tensor=2", "parallel.sequence=true"}, {"parallel.context=2"}, {"parallel.pipeline=2"}, {"parallel.data=2"}}) {
    const Folder folder;
    Words more = six;
    more.insert(more.end(), grid.begin(), grid.end());
    const Result r = run(material().learning(folder.path(), more), {.ranks = 2});
    ASSERT_EQ(r.code, 0) << r.out << r.err;
    const auto found = losses(folder.path());
    for (const auto& [step, loss] : single_rank) EXPECT_NEAR(found.at(step), loss, 1e-9) << grid[0] << " step " << step;
    const auto logged = metrics(folder.path(), "validation");
    ASSERT_EQ(logged.size(), validated.size());
    for (std::size_t i = 0; i < logged.size(); ++i)
      for (const char* key : {"loss", "accuracy"})
        EXPECT_NEAR(double(logged[i].at(key)), double(validated[i].at(key)), 1e-9) << grid[0] << " " << key;
  }
  const Folder parts;
  ASSERT_EQ(run(material().learning(parts.path(), {"train.steps=3"})).code, 0);
  Words more = material().learning(parts.path(), {"train.steps=6"});
  more.push_back("--resume");
  const Result r = run(more);
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  expect_bitwise_equal_runs(full.path(), parts.path(), 6);
}

// A T5 folder has the objective span_corruption. Training it on pairs keeps its head, tied or not: the first step has
// the loss of the same weights that were stored with the objective seq2seq.
TEST(seq2seq, t5_folder_is_fine_tuned_with_its_head) {
  ASSERT_EQ(material().built.code, 0);
  for (const char* tied : {"true", "false"}) {
    const Folder folder;
    const Words head{fmt::format("model.tie_word_embeddings={}", tied)};
    ASSERT_EQ(run(material().learning(folder / "first", with(head, {"train.steps=20", "checkpoint.every=20"}))).code, 0);
    const fs::path trained = Material::checkpoint(folder / "first", 20), t5 = folder / "t5";
    ASSERT_EQ(run({"export-hf", trained, t5}).code, 0);
    const auto tuned = [&](const fs::path& from, const char* output, const Words& more) {
      return run(material().learning(folder / output, with(head, with({"--init-from", from, "train.steps=2"}, more))));
    };
    expect_message(tuned(t5, "planned", {"--dry-run"}), 0, "parameters");
    ASSERT_EQ(tuned(trained, "stored", {}).code, 0);
    const Result r = tuned(t5, "folder", {});
    ASSERT_EQ(r.code, 0) << r.out << r.err;
    const auto expected = losses(folder / "stored"), found = losses(folder / "folder");
    for (const int step : {1, 2}) EXPECT_NEAR(found.at(step), expected.at(step), 1e-6 * expected.at(step)) << "tied " << tied << " step " << step;
  }
}

// A dry run refuses the weights that the run would refuse.
TEST(seq2seq, dry_run_refuses_a_head_of_another_objective) {
  const Folder folder;
  const Words start{"--init-from", Material::get().trained(), "train.objective=mlm", "train.mlm.mask_token=1", "model.attention.causal=false"};
  for (const Words& more : {Words{}, Words{"--dry-run"}})
    expect_message(run(Material::get().train(folder / "out", with(start, more))), 78, "train.init_head=new");
}

TEST(seq2seq, plan_and_verify_accept_an_encoder_decoder) {
  const Folder folder;
  Words words = material().learning(folder.path(), {"parallel.tensor=2", "parallel.context=2"});
  words.front() = "verify";
  words.insert(words.end(), {"-n", "4"});
  expect_message(run(words), 0, "RUN OK");
  words = material().learning(folder.path());
  words.front() = "plan";
  EXPECT_EQ(run(words).code, 0);
}

// Record i of a file of pairs is the record of its pair i alone.
TEST(seq2seq, eval_records_have_the_order_of_data) {
  const Folder folder;
  ASSERT_EQ(run(material().learning(folder / "out", {"train.steps=1", "checkpoint.every=1"})).code, 0);
  const auto records = [&](const std::string& lines) {
    const fs::path prefix = folder / "p";
    put_contents(folder / "p.jsonl", lines);
    const Result built = run({"data", "build", folder / "p.jsonl", prefix, "--tokenizer", Material::get().tokenizer(), "--source", "asked", "--key",
                              "answer", "--overwrite"});
    EXPECT_EQ(built.code, 0) << built.err;
    const Result r =
        run({"eval", Material::checkpoint(folder / "out", 1), "--data", prefix, "--length", "7", "--overwrite", "--records", folder / "r.jsonl"});
    EXPECT_EQ(r.code, 0) << r.err;
    std::vector<double> losses;
    for (const std::string& line : lines_of(contents(folder / "r.jsonl"))) losses.push_back(Json::parse(line).at("loss"));
    return losses;
  };
  std::string all;
  std::vector<double> alone;
  for (const char* source : {"3", "10", "542", "86", "9713"}) {
    const std::string line = Json{{"asked", source}, {"answer", sorted(source)}}.dump() + "\n";
    all += line;
    for (const double loss : records(line)) alone.push_back(loss);
  }
  const std::vector<double> together = records(all);
  ASSERT_EQ(together.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-9) << "pair " << i;
}

TEST(seq2seq, wrong_pairs_and_settings_are_refused) {
  const Folder folder;
  const Words build{"data", "build", folder / "wrong.jsonl", folder / "w", "--tokenizer", Material::get().tokenizer()};
  const auto built = [&](const std::string& line, const Words& more) {
    put_contents(folder / "wrong.jsonl", "{\"s\": \"a\", \"t\": \"b\"}\n" + line + "\n");
    Words words = build;
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Words keys{"--source", "s", "--key", "t"};
  expect_message(built("{\"t\": \"b\"}", keys), 65, "wrong.jsonl:2: the line has no key 's' (keys: t)");
  expect_message(built("{\"s\": \"a\"}", keys), 65, "wrong.jsonl:2: the line has no key 't'");
  expect_message(built("{\"s\": \" \", \"t\": \"b\"}", keys), 65, "wrong.jsonl:2: the line has an empty text under 's'");
  expect_message(built("", {"--source", "text"}), 64, "--source text: this is also the key of the target text");
  expect_message(built("", {"--source", "s", "--pairs"}), 64, "--source cannot be combined with");
  expect_message(built("", {"--source", "s", "--documents", "line"}), 64, "--source reads JSON lines");
  const auto learnt = [&](const Words& more) { return run(material().learning(folder / "out", more)); };
  expect_message(learnt({"data.order=shuffled"}), 78, "set data.order to documents");
  expect_message(learnt({"data.prefixes=[" + Material::get().prefix().string() + "]"}), 65, "are not pairs of an encoder input and a target text");
  expect_message(learnt({"model.pattern=*-"}), 78, "no encoder");
  expect_message(run(Material::get().train(folder / "out", {"train.seq2seq.end_token=3"})), 78, "train.seq2seq.end_token");
  expect_message(learnt({"train.steps=1", "train.mlm.mask_token=3"}), 0, "train.mlm.mask_token");
  expect_message(run({"eval", Material::get().trained(), "--objective", "seq2seq", "--data", material().prefix}), 64, "--objective seq2seq");
}

}  // namespace gyr::testing::seq2seq_suite
