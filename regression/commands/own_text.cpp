// SPDX-License-Identifier: BSD-3-Clause
// Tests of the way from the user's own text to a trained model: advice of `tokenizer train`, `data build`, `plan` and
// `train`, and errors for files in place of a PREFIX.
#include <gtest/gtest.h>

#include <regex>

#include "regression/support/material.hpp"

namespace gyr::testing::own_text_suite {

namespace fs = std::filesystem;

namespace {

const Material& material() { return Material::get(); }

void expect_parts(const std::string& text, const Words& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

std::string built(const fs::path& text, const fs::path& prefix, const Words& options = {}) {
  Words words{"data", "build", text, prefix, "--tokenizer", material().tokenizer()};
  words.insert(words.end(), options.begin(), options.end());
  const Result r = run(words);
  EXPECT_EQ(r.code, 0) << output_of(r);
  return r.out;
}

TEST(own_text, data_build_reports_single_documents_and_settings) {
  const Folder folder;
  const fs::path text = folder / "my.txt", prefix = folder / "one";
  put_contents(text, contents(material().text()).substr(0, 30000));
  const std::string one = built(text, prefix);
  expect_parts(one,
               {"tokens in 1 document from 30.0 kB of text", "warning: 1 document is too few for a validation split: --documents page",
                "in the deck: data.prefixes=[" + prefix.string() + "] data.tokenizer=" + material().tokenizer().string() + " model.vocab_size=300",
                "suggested:   train.steps="});
  const std::string pages = built(text, folder / "pages", {"--documents", "page"});
  expect_parts(pages, {"tokens in 8 documents from 30.0 kB of text"});
  EXPECT_NE(pages.find("warning: 8 documents are too few"), std::string::npos) << pages;
  const std::string ten = built(material().text(), folder / "ten", {"--documents", "page"});
  EXPECT_EQ(ten.find("warning"), std::string::npos) << ten;
  expect_parts(ten, {"validation:  documents ", ", in the order of the files, with the default data.split; mix documents"});
  put_contents(folder / "t.csv", "a,b\n1,2\n");
  expect_parts(built(folder / "t.csv", folder / "cells"), {"t.csv is read as plain text, with its commas and header"});
}

TEST(own_text, settings_of_examples_follow_data_build) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += fmt::format("{{\"prompt\": \"what is {0}?\", \"response\": \"it is {0}\"}}\n", i);
  put_contents(folder / "qa.jsonl", lines);
  const std::string good = built(folder / "qa.jsonl", folder / "qa", {"--template", "Question: {prompt}\\nAnswer: {response}"});
  expect_parts(good, {"in the deck: data.prefixes=[" + (folder / "qa").string() + "] data.tokenizer=" + material().tokenizer().string() +
                      " data.order=documents data.documents=separate\nsuggested:   train.steps="});
  EXPECT_EQ(good.find("nothing between"), std::string::npos) << good;
  expect_parts(built(folder / "qa.jsonl", folder / "joined", {"--template", "{prompt}{response}"}),
               {"warning: the template has nothing between {prompt} and {response}: a model cannot learn where the answer begins; write for example "
                "--template 'Question: {prompt}\\nAnswer: {response}'"});
  const Result trained = run(material().train(
      folder / "out", {"data.prefixes=[" + (folder / "qa").string() + "]", "data.order=documents", "data.documents=separate", "train.steps=1"}));
  EXPECT_EQ(trained.code, 0) << output_of(trained);
  const std::string warning = (folder / "qa").string() + " holds conversations (--template), and data.order = shuffled joins them";
  EXPECT_EQ(trained.out.find("holds conversations"), std::string::npos) << output_of(trained);
  for (const char* command : {"train", "plan"}) {
    Words words = material().train(folder / command, {"data.prefixes=[" + (folder / "qa").string() + "]", "data.order=shuffled", "train.steps=1"});
    words.front() = command;
    expect_parts(run(words).out, {"warning: " + warning});
  }
}

// A folder stands for the tokenizer.json in it, and that of a run for the tokenizer of its deck.
TEST(own_text, folder_stands_for_its_tokenizer) {
  const Folder folder;
  fs::create_directories(folder / "model");
  fs::copy_file(material().tokenizer(), folder / "model" / "tokenizer.json");
  const std::string prefix = built(material().text(), folder / "t").empty() ? "" : (folder / "t").string();
  ASSERT_EQ(
      run(material().train(folder / "run", {"data.prefixes=[" + prefix + "]", "train.steps=1", "data.tokenizer=" + material().tokenizer().string()}))
          .code,
      0);
  const auto tokens_by = [&](const fs::path& given, const char* name) {
    EXPECT_EQ(run({"data", "build", material().text(), folder / name, "--tokenizer", given}).code, 0);
    return contents(folder / (std::string(name) + ".bin"));
  };
  EXPECT_EQ(tokens_by(folder / "model", "m"), contents(folder / "t.bin"));
  EXPECT_EQ(tokens_by(folder / "run", "r"), contents(folder / "t.bin"));
  const Result none = run({"data", "build", material().text(), folder / "x", "--tokenizer", folder.path()});
  EXPECT_EQ(none.code, int(Exit::data));
  EXPECT_NE(none.err.find("is a folder; give the path of the tokenizer.json in it"), std::string::npos) << none.err;
}

TEST(own_text, fine_tuning_warns_of_fewer_epochs) {
  const Folder folder;
  put_contents(folder / "short.txt", contents(material().text()).substr(0, 300));
  built(folder / "short.txt", folder / "s", {"--documents", "line"});
  const auto warned = [&](const char* name, const Words& more) {
    Words words =
        material().train(folder / name, {"train.steps=12", "train.eval_every=0", "data.split=1", "data.prefixes=[" + (folder / "s").string() + "]"});
    words.insert(words.end(), more.begin(), more.end());
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << output_of(r);
    std::smatch found;
    EXPECT_TRUE(std::regex_search(r.out, found, std::regex(R"(the run reads ([0-9.]+) epochs)"))) << r.out;
    const double epochs = found.empty() ? 0 : std::stod(found[1]);
    EXPECT_TRUE(epochs > 10 && epochs < 100) << epochs;
    return r.out.find("times, and more than four times teach little") != std::string::npos;
  };
  EXPECT_FALSE(warned("first", {}));
  EXPECT_TRUE(warned("second", {"--init-from", material().trained()}));
}

TEST(own_text, json_lines_read_as_text_give_a_warning) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += fmt::format("{{\"text\": \"line {} of the text\"}}\n", i);
  put_contents(folder / "qa.jsonl", lines);
  const char* const warning = "qa.jsonl has JSON lines by its name, but --documents reads their braces and keys as text";
  EXPECT_NE(built(folder / "qa.jsonl", folder / "lines", {"--documents", "line"}).find(warning), std::string::npos);
  EXPECT_EQ(built(folder / "qa.jsonl", folder / "objects").find(warning), std::string::npos);
}

TEST(own_text, tokenizer_train_suggests_a_vocabulary_that_fits) {
  const Folder folder;
  const Result r = run({"tokenizer", "train", folder / "t.json", material().text(), "--vocab-size", "32768"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  const int tokens = std::stoi(r.out.substr(r.out.find(": ") + 2));
  expect_parts(r.out, {"tokens, learned from", fmt::format("the vocabulary stays below --vocab-size 32768: write model.vocab_size={}\n", tokens)});
  EXPECT_EQ(r.out.find("suits this text") != std::string::npos, tokens > 2048) << r.out;
  put_contents(folder / "short.txt", "one two three one two three one two three\n");
  const Result seldom = run({"tokenizer", "train", folder / "s.json", folder / "short.txt", "--vocab-size", "32768"});
  EXPECT_EQ(seldom.out.find("512"), std::string::npos) << seldom.out;
  std::string words;  // of as many different letters as possible, so that the vocabulary becomes large
  std::uint32_t state = 1;
  for (int i = 0; i < 60000; ++i) words += char('a' + ((state = state * 1664525u + 1013904223u) >> 24) % 26), words += i % 6 == 5 ? " " : "";
  put_contents(folder / "random.txt", words);
  const Result large = run({"tokenizer", "train", folder / "r.json", folder / "random.txt", "--vocab-size", "3000"});
  expect_parts(large.out, {"warning: a vocabulary of 3000 is large for", "--vocab-size 512 suits this text"});
  const Result fitting = run({"tokenizer", "train", folder / "u.json", material().text(), "--vocab-size", "300"});
  EXPECT_EQ(fitting.out.find("warning"), std::string::npos) << fitting.out;
}

TEST(own_text, files_in_place_of_a_prefix_are_named) {
  const Folder folder;
  const std::string prefix = material().prefix().string(), text = material().text().string();
  const auto refused = [&](const Words& words, const Words& parts) {
    const Result r = run(words);
    EXPECT_EQ(r.code, int(Exit::missing)) << output_of(r);
    expect_parts(r.err, parts);
  };
  for (const char* ending : {".bin", ".idx"}) {
    refused(material().train(folder / "out", {"data.prefixes=[" + prefix + ending + "]"}),
            {prefix + ending + ": a PREFIX of token files is named without .bin or .idx: " + prefix});
    refused({"data", "info", prefix + ending}, {"is named without .bin or .idx: " + prefix});
  }
  refused(material().train(folder / "out", {"data.prefixes=[" + text + "]"}),
          {text + ": is a file, not the PREFIX of token files; `gyrfalcon data build " + text + " PREFIX"});
  const Result bare = run(material().train(folder / "out", {"data.prefixes=" + text}));
  EXPECT_EQ(bare.code, int(Exit::config)) << output_of(bare);
  expect_parts(bare.err, {"is a file, not a list of PREFIXes of token files; `gyrfalcon data build " + text + " PREFIX --tokenizer FILE`"});
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(own_text, train_reports_epochs_and_doubtful_settings) {
  const Folder folder;
  const Result r = run(material().train(folder / "out", {"train.steps=3", "optimizer.warmup_steps=100", "train.eval_every=3", "data.split=90,10",
                                                         "train.eval_batches=32", "optimizer.min_lr=1", "data.order=shuffled"}),
                       {.ranks = 2});
  ASSERT_EQ(r.code, 0) << output_of(r);
  expect_parts(r.out, {"warning: optimizer.warmup_steps = 100 is longer than the run (train.steps = 3)", "warning: optimizer.min_lr = 1 is above",
                       "training data: ", "one epoch is ", "; the run reads 0.",
                       "warning: train.eval_batches = 32 reads the 242 sequences of the validation split 1.1 times; train.eval_batches=31"});
  const auto first = r.out.find("warning: optimizer.warmup_steps");
  EXPECT_EQ(r.out.find("warning: optimizer.warmup_steps", first + 1), std::string::npos) << "two ranks print it once";
}

TEST(own_text, empty_validation_split_error_names_the_remedies) {
  const Folder folder;
  built(material().text(), folder / "one");
  const Result r = run(material().train(folder / "out", {"data.prefixes=[" + (folder / "one").string() + "]", "train.eval_every=1"}));
  EXPECT_EQ(r.code, int(Exit::data)) << output_of(r);
  expect_parts(r.err, {"the validation split is empty", "of 1 document round to none", "data build --documents page", "train.eval_every=0"});
}

TEST(own_text, plan_reports_tokens_per_parameter_and_epochs) {
  const std::string demo = std::string(GYR_SOURCE_DIR) + "/input/demo.yaml";
  const Result r = run({"plan", material().deck(), "train.steps=1k"});
  ASSERT_EQ(r.code, 0) << output_of(r);
  expect_parts(r.out, {"in 1000 steps", " per parameter, ", " epochs of ", " training tokens"});
  const Result none = run({"plan", demo});
  expect_parts(none.out, {"1.64 M in 800 steps, 0.48 per parameter; data.prefixes cannot be read yet"});
  const Words predicted{"plan", demo, "--cluster", std::string(GYR_SOURCE_DIR) + "/input/clusters/h100.yaml", "--tokens"};
  const auto days = [&](const char* tokens) {
    Words words = predicted;
    words.push_back(tokens);
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << output_of(r);
    return r.out;
  };
  EXPECT_EQ(days("1T"), days("1e12"));
  EXPECT_EQ(days("300B"), days("3e11"));
  Words wrong = predicted;
  wrong.push_back("1X");
  expect_parts(run(wrong).err, {"--tokens 1X: must be a number from 1 to 1e+18, as in 1e9, 300B or 1T"});
}

TEST(own_text, plan_reports_data_that_train_refuses) {
  const Folder folder;
  built(material().text(), folder / "one");
  const auto planned = [&](const Words& more) {
    Words words{"plan", material().deck()};
    words.insert(words.end(), more.begin(), more.end());
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << output_of(r);
    return r.out;
  };
  expect_parts(planned({"data.prefixes=[nope]", "data.tokenizer=\"\""}),
               {"warning: train stops: nope.idx: does not exist; `gyrfalcon data build", "; data.prefixes cannot be read yet"});
  expect_parts(planned({"data.prefixes=[" + (folder / "one").string() + "]", "train.eval_every=1"}),
               {"warning: train stops: " + (folder / "one").string() + ": the validation split is empty"});
  expect_parts(
      planned({"train.global_batch_size=4194304", "train.micro_batch_size=1048576", "train.seq_length=512", "model.pattern=*"}),
      {"warning: train.global_batch_size = 4194304 counts sequences of 512 tokens: a step reads 2.15e+09 tokens; if 4194304 tokens are meant, "
       "write train.global_batch_size=8192"});
  EXPECT_EQ(planned({}).find("warning"), std::string::npos);
}

TEST(own_text, plan_and_train_count_equal_epochs) {
  const Folder folder;
  const Words changes{"train.steps=3", "data.order=documents", "train.seq_length=64"};
  const Result trained = run(material().train(folder / "out", changes));
  Words words{"plan", material().deck()};
  words.insert(words.end(), changes.begin(), changes.end());
  const std::regex run_reads("the run reads ([0-9.e-]+) epochs"), plan_reads(", ([0-9.e-]+) epochs of");
  std::smatch a, b;
  const std::string plan = run(words).out;
  ASSERT_TRUE(std::regex_search(trained.out, a, run_reads)) << output_of(trained);
  ASSERT_TRUE(std::regex_search(plan, b, plan_reads)) << plan;
  EXPECT_EQ(a[1], b[1]);
}

TEST(own_text, vocabulary_far_above_the_tokenizer_is_reported) {
  const Folder folder;
  const char* const note = "warning: model.vocab_size = 5000, but the tokenizer of the data has 300 tokens";
  const Words large{"model.vocab_size=5000", "train.steps=1"};
  expect_parts(run(material().train(folder / "out", large)).out, {note, "model.vocab_size=320 suits it"});
  expect_parts(run({"plan", material().deck(), large[0]}).out, {note});
  EXPECT_EQ(run({"plan", material().deck(), "model.vocab_size=512"}).out.find("model.vocab_size = "), std::string::npos) << "padding is usual";
}

TEST(own_text, files_in_place_of_a_deck_are_named) {
  const Folder folder;
  const auto refused = [](const Words& words, const std::string& part) {
    const Result r = run(words);
    EXPECT_EQ(r.code, int(Exit::missing)) << output_of(r);
    expect_parts(r.err, {part});
  };
  ASSERT_EQ(run(material().train(folder / "out", {"train.steps=1"})).code, 0);
  const std::string out = (folder / "out").string();
  for (const std::string& place : {out, out + "/", out + "/checkpoints", out + "/checkpoints/step_00000001"})
    refused({"train", "--resume", place}, "is a folder, not a deck; the deck of this run is " + out + "/deck.yaml");
  refused({"train", folder.path().string()}, "is a folder, not a deck\n");
  put_contents(folder / "my.yaml", "model: {pattern: P}\n");
  refused({"plan", (folder / "my").string()}, "there is no such deck; did you mean " + (folder / "my.yaml").string() + "?");
  for (const char* name : {"falcon-h1-7b", "Falcon-H1-7B", "decks/falcon-h1-7b.yaml", "falcon-h17b"})
    EXPECT_TRUE(std::regex_search(run({"plan", name}).err, std::regex("did you mean [^ ]*input/falcon-h1-7b.yaml\\?"))) << name;
}

TEST(own_text, resume_without_overrides_prints_the_old_values) {
  const Folder folder;
  const auto trained = [&](const Words& changes) {
    const Result r = run(material().train(folder / "out", changes));
    EXPECT_EQ(r.code, 0) << output_of(r);
    return r.out;
  };
  trained({"train.steps=2", "optimizer.lr=2e-3", "data.split=90,10"});
  const std::string resumed = trained({"train.steps=3", "--resume"});
  const std::string way = "to keep the old ones, stop it and add to the command: ";
  expect_parts(resumed, {way + "data.split=90,10 ", " optimizer.lr=0.002"});
  // A run without steps left continues with no values. The note about it is the last line of the log.
  const std::string done = trained({"train.steps=3", "--resume", "optimizer.lr=2e-3", "data.split=90,10"});
  EXPECT_EQ(done.find(way), std::string::npos) << done;
  EXPECT_GT(done.find("nothing is left to do"), done.find("% of run")) << done;
}

}  // namespace
}  // namespace gyr::testing::own_text_suite
