// SPDX-License-Identifier: BSD-3-Clause
// Supervised fine-tuning with the program, from prompts and responses in JSONL to a model that responds: data build,
// train, eval, generate.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "regression/support/material.hpp"

namespace gyr::testing::fine_tuning_suite {

namespace fs = std::filesystem;

namespace {

const std::string chat = "<|bos|>user: {prompt}<|pad|>model: {response}<|endoftext|>";
const Words syllables{"ka", "lo", "mi", "ren", "tu", "sha", "ven", "or"};

std::string question(std::size_t i) { return syllables[i % 8] + " " + syllables[i / 8 % 8] + " " + syllables[i * 5 % 8]; }
// The last two words of the question in reverse order.
std::string response(std::size_t i) { return syllables[i * 5 % 8] + " " + syllables[i / 8 % 8]; }

// 640 examples: each of 64 questions ten times, with 0 to 3 filler words before it.
struct Examples {
  Folder folder;
  fs::path lines = folder / "chat.jsonl", prefix = folder / "chat";
  Result built;

  Examples() {
    std::string text;
    for (std::size_t i = 0; i < 640; ++i) {
      std::string prompt = question(i % 64);
      for (std::size_t n = 0; n < i % 4; ++n) prompt = "mi " + prompt;
      text += nlohmann::json{{"prompt", prompt}, {"response", response(i % 64)}}.dump() + "\n";
    }
    put_contents(lines, text);
    built = run({"data", "build", lines, prefix, "--tokenizer", Material::get().tokenizer(), "--template", chat, "--no-end"});
  }
  Words train(const fs::path& output, const Words& changes) const {
    Words words{"data.prefixes=[" + prefix.string() + "]", "data.order=documents", "data.documents=separate", "optimizer.warmup_steps=5"};
    words.insert(words.end(), changes.begin(), changes.end());
    return Material::get().train(output, words);
  }
};

const Examples& examples() {
  static const Examples examples;
  return examples;
}

}  // namespace

TEST(fine_tuning, data_build_reports_the_count_of_target_tokens) {
  ASSERT_EQ(examples().built.code, 0) << examples().built.err;
  const std::string marks = contents(examples().prefix.string() + "_mask.bin");
  const long learned = std::count(marks.begin(), marks.end(), char(1));
  EXPECT_EQ(contents(examples().prefix.string() + ".bin").size(), 2 * marks.size());
  EXPECT_NE(examples().built.out.find(fmt::format("chat_mask.bin: {} of the tokens", learned)), std::string::npos) << examples().built.out;
}

TEST(fine_tuning, template_file_and_rank_count_change_no_byte) {
  const Folder folder;
  put_contents(folder / "template", chat + "\n");
  const Words words{"data",       "build",       examples().lines,
                    folder / "p", "--tokenizer", Material::get().tokenizer(),
                    "--no-end",   "--template",  "@" + (folder / "template").string()};
  ASSERT_EQ(run(words, {.ranks = 2}).code, 0);
  for (const char* file : {".bin", ".idx", "_mask.bin", "_mask.idx"})
    EXPECT_EQ(contents((folder / "p").string() + file), contents(examples().prefix.string() + file)) << file;
}

// Trained only on the responses, the model must generate them, followed by the end token.
TEST(fine_tuning, model_learns_responses_to_prompts) {
  const Folder folder;
  const Result r = run(examples().train(folder.path(), {"train.seq_length=96", "train.steps=150", "train.eval_every=150", "train.eval_batches=1"}));
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("576 documents in "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find(" % full"), std::string::npos) << r.out;
  const auto steps = metrics(folder.path(), "step"), validation = metrics(folder.path(), "validation");
  const double first = steps.front().at("loss"), last = steps.back().at("loss"), held_out = validation.back().at("loss");
  std::printf("loss of answers: %.3f, after %zu steps %.3f, held out %.3f\n", first, steps.size(), last, held_out);
  EXPECT_GT(first, 4);
  EXPECT_LT(last, 0.25 * first);
  EXPECT_LT(held_out, 0.25 * first);

  // The evaluation must score exactly the tokens that the loss mask marks.
  const fs::path trained = Material::checkpoint(folder.path(), 150);
  const Result scored = run({"eval", trained, "--data", examples().prefix});
  ASSERT_EQ(scored.code, 0) << scored.err;
  const std::string marks = contents(examples().prefix.string() + "_mask.bin");
  EXPECT_NE(scored.out.find(fmt::format(" {} tokens of", std::count(marks.begin(), marks.end(), char(1)))), std::string::npos) << scored.out;

  // Separate documents are masked from each other, so the loss must not depend on how many documents share a window.
  double loss[2];
  for (const int many : {0, 1}) {
    const Result packed = run({"eval", trained, "--data", examples().prefix, "--length", many ? "200" : "32"});
    ASSERT_EQ(std::sscanf(packed.out.substr(packed.out.find("loss ")).c_str(), "loss %lf", &loss[many]), 1) << packed.out;
  }
  EXPECT_NEAR(loss[0], loss[1], 2e-6 + 2e-5 * loss[0]);

  Words ask{"generate", trained, "--greedy", "--tokens", "30", "--template", chat};
  for (std::size_t i = 0; i < 16; ++i) ask.insert(ask.end(), {"--prompt", question(i * 4)});
  const Result generated = run(ask);
  ASSERT_EQ(generated.code, 0) << generated.err;
  const Words responses = lines_of(generated.out);
  int right = 0;
  for (std::size_t i = 0; i < 16; ++i) right += std::ranges::search(responses, Words{question(i * 4), response(i * 4)}).begin() != responses.end();
  EXPECT_GE(right, 12) << generated.out;
}

// Target tokens are unevenly distributed over the windows. The loss is a mean over the global batch, so data
// parallelism must not change it.
TEST(fine_tuning, one_and_four_data_parallel_ranks_train_equally) {
  const Folder one, four;
  const Words steps{"train.steps=4", "train.seq_length=64", "train.eval_every=4"};
  ASSERT_EQ(run(examples().train(one.path(), steps)).code, 0);
  ASSERT_EQ(run(examples().train(four.path(), steps), {.ranks = 4}).code, 0);
  for (const char* kind : {"step", "validation"}) {
    const auto a = metrics(one.path(), kind), b = metrics(four.path(), kind);
    ASSERT_EQ(a.size(), b.size());
    ASSERT_FALSE(a.empty());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i].at("loss"), double(b[i].at("loss")), 1e-5 * double(a[i].at("loss"))) << kind << i;
  }
}

TEST(fine_tuning, resumed_run_ends_with_the_same_bits) {
  const Folder full, parts;
  const auto until = [&](const fs::path& folder, const char* steps, const Words& more = {}) {
    Words words = examples().train(folder, {steps, "optimizer.decay_steps=8"});
    words.insert(words.end(), more.begin(), more.end());
    return run(words).code;
  };
  ASSERT_EQ(until(full.path(), "train.steps=8"), 0);
  ASSERT_EQ(until(parts.path(), "train.steps=3"), 0);
  ASSERT_EQ(until(parts.path(), "train.steps=8", {"--resume"}), 0);
  const Result r = run({"diff", Material::checkpoint(full.path(), 8), Material::checkpoint(parts.path(), 8), "--tolerance", "0"});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
}

TEST(fine_tuning, wrong_templates_and_loss_masks_are_refused) {
  const Folder folder;
  const auto refused = [&](const Words& arguments, Exit code, const std::string& part) {
    for (const int ranks : {0, 2}) {
      if (ranks > 0 && code == Exit::usage) continue;  // usage errors are the same on every rank
      const Result r = run(arguments, {.ranks = ranks});
      EXPECT_EQ(r.code, int(code)) << r.err;
      EXPECT_NE(r.err.find(part), std::string::npos) << "'" << part << "' is not in: " << r.err;
    }
    EXPECT_FALSE(fs::exists(folder / "p.bin"));
  };
  const auto build = [&](const Words& more) {
    Words words{"data", "build", examples().lines, folder / "p", "--tokenizer", Material::get().tokenizer()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  refused(build({"--template", "{promt}{response}"}), Exit::usage, "did you mean {prompt}?");
  refused(build({"--template", "@" + (folder / "none").string()}), Exit::missing, "none");
  refused(build({"--template", "{prompt}{response}", "--key", "text"}), Exit::usage, "--key");
  refused(build({"--template", "{prompt}{response}", "--role-key", "from"}), Exit::usage, "--role-key does not apply");
  refused(build({"--template", "{prompt}{response}", "--documents", "line"}), Exit::usage, "--documents line");
  refused(build({"--template", "{prompt}{response}", "--separator", "x"}), Exit::usage, "--separator");
  refused(build({"--prompt-key", "q"}), Exit::usage, "--template");
  refused(build({"--template", "{prompt}{response}", "--prompt-key", "q"}), Exit::data,
          "chat.jsonl:1: the line has no key 'q' (keys: prompt, response); name the keys with --prompt-key prompt --response-key response");
  put_contents(folder / "alpaca.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}\n");
  put_contents(folder / "gpt.jsonl", "{\"conversations\": []}\n");
  const auto other = [&](const std::string& file, const Words& more, const std::string& sentence) {
    Words words = build(more);
    words[2] = (folder / file).string();
    refused(words, Exit::data, file + ":1: the line has no key " + sentence);
  };
  const std::string names = "--prompt-key instruction --response-key output", turns = "--messages-key conversations --role-key from";
  other("alpaca.jsonl", {"--template", "{prompt}{response}"}, "'prompt' (keys: instruction, output); name the keys with " + names);
  other("alpaca.jsonl", {},
        "'text' (keys: instruction, output); prompts with responses need --template, as in --template '{prompt}{response}' " + names);
  other("gpt.jsonl", {"--template", "{role}{content}"}, "'messages' (keys: conversations); name the keys with " + turns);
  refused(build({"--template", "{role}{content}"}), Exit::data, "chat.jsonl:1: the line has no key 'messages'");

  for (const char* file : {".bin", ".idx", "_mask.idx"}) fs::copy(examples().prefix.string() + file, (folder / "q").string() + file);
  put_contents(folder / "q_mask.bin", std::string(fs::file_size(examples().prefix.string() + "_mask.bin"), char(0)));
  const auto train = [&](const Words& more) {
    Words words = examples().train(folder / "out", {"data.prefixes=[" + (folder / "q").string() + "]", "train.steps=2"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  refused(train({}), Exit::data, "step 1: no token of the batch has a label");
  refused({"eval", Material::get().trained(), "--data", folder / "q"}, Exit::data, "have no token to predict");
  fs::copy(Material::get().prefix().string() + ".idx", (folder / "q").string() + ".idx", fs::copy_options::overwrite_existing);
  fs::copy(Material::get().prefix().string() + ".bin", (folder / "q").string() + ".bin", fs::copy_options::overwrite_existing);
  refused(train({}), Exit::data, "q_mask.idx: a loss mask with 640 sequences");
}

}  // namespace gyr::testing::fine_tuning_suite
