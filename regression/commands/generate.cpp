// SPDX-License-Identifier: BSD-3-Clause
// Tests of `gyrfalcon generate`, and of the loss of `gyrfalcon eval`: results do not depend on the number of ranks or
// on other prompts, and are repeatable.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <regex>
#include <sstream>

#include "regression/support/material.hpp"
#include "src/base/json.hpp"

namespace gyr::testing::generate_suite {

namespace {

// Text that `gyrfalcon generate` prints for these arguments.
std::string generated(const Words& more, int ranks = 0) {
  Words arguments{"generate", Material::get().trained(), "--tokens", "24"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Result r = run(arguments, {.ranks = ranks});
  EXPECT_EQ(r.code, 0) << r.err;
  return r.out;
}

struct Score {
  double loss = 0, perplexity = 0;
  long tokens = 0, sequences = 0;
};

Score score(const std::filesystem::path& checkpoint, const Words& more = {}, int ranks = 0) {
  Words arguments{"eval", checkpoint};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Result r = run(arguments, {.ranks = ranks});
  EXPECT_EQ(r.code, 0) << r.err;
  Score s;
  EXPECT_EQ(std::sscanf(r.out.c_str(), "loss %lf | perplexity %lf | %ld tokens of %ld sequences", &s.loss, &s.perplexity, &s.tokens, &s.sequences), 4)
      << r.out;
  return s;
}

Result must(const Words& words) {
  const Result r = run(words);
  EXPECT_EQ(r.code, 0) << r.err;
  return r;
}

}  // namespace

TEST(generate, greedy_text_is_the_same_on_two_ranks) {
  const std::string text = generated({"--prompt", "ka", "--greedy"});
  EXPECT_TRUE(text.starts_with("ka")) << text;
  EXPECT_GT(text.size(), 20u) << text;
  EXPECT_EQ(text, generated({"--prompt", "ka", "--greedy"}, 2));
  EXPECT_EQ(text, generated({"--prompt", "ka", "--greedy", "--pipeline", "2"}, 2));
  EXPECT_EQ(text, generated({"--prompt", "ka", "--temperature", "0"}));
  EXPECT_EQ(text, generated({"--prompt", "ka", "--top-k", "1"}));
  EXPECT_EQ(text, generated({"--prompt", "ka", "--top-p", "0.000001"}));
}

TEST(generate, seed_determines_the_sampled_text) {
  const Words hot{"--prompt", "ka", "--temperature", "1.5", "--seed"};
  const auto with = [&](const char* seed, int ranks = 0) {
    Words words = hot;
    words.push_back(seed);
    return generated(words, ranks);
  };
  const std::string text = with("5");
  EXPECT_EQ(text, with("5"));
  EXPECT_EQ(text, with("5", 2));
  EXPECT_NE(text, with("6"));
}

TEST(generate, text_ends_before_the_stop_string) {
  const std::string text = generated({"--prompt", "ka", "--greedy"});
  const std::string stop = text.substr(8, 3);
  const auto at = text.find(stop, 2);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(generated({"--prompt", "ka", "--greedy", "--stop", stop}), text.substr(0, at) + "\n");
  EXPECT_EQ(generated({"--prompt", "ka", "--greedy", "--stop", "#never#", "--stop", stop}), text.substr(0, at) + "\n");
}

TEST(generate, several_prompts_at_once_equal_single_prompts) {
  const Words prompts{"ka", "lomi tusha ven", "or"};
  Words all{"--greedy"};
  std::string expected;
  for (const std::string& prompt : prompts) {
    all.push_back("--prompt"), all.push_back(prompt);
    if (!expected.empty()) expected += "\n";
    expected += generated({"--prompt", prompt, "--greedy"});
  }
  EXPECT_EQ(generated(all), expected);
  EXPECT_EQ(generated(all, 2), expected);
  all.insert(all.end(), {"--data", "2"});
  EXPECT_EQ(generated(all, 2), expected);
}

// The result of each prompt must not depend on the prompts that share its batch or on which slot of the batch it takes
// over.
TEST(generate, prompt_file_results_keep_the_file_order) {
  const Folder folder;
  const Words prompts{"ka", "lomi tusha ven", "or", "tusha", "ka lo"};
  std::string lines, objects;
  for (const std::string& prompt : prompts) lines += prompt + "\n", objects += Json{{"prompt", prompt}}.dump() + "\n";
  put_contents(folder / "prompts.txt", lines);
  put_contents(folder / "prompts.jsonl", objects);
  const std::string full = generated({"--batch", folder / "prompts.txt", "--greedy", "--stop", "a "});
  std::istringstream replies(full);
  std::string line;
  for (const std::string& prompt : prompts) {
    ASSERT_TRUE(std::getline(replies, line));
    const Json reply = Json::parse(line);
    EXPECT_EQ(reply["prompt"], prompt);
    EXPECT_EQ(prompt + reply["text"].get<std::string>() + "\n", generated({"--prompt", prompt, "--greedy", "--stop", "a "}));
    EXPECT_TRUE(reply["end"] == "stop" || (reply["end"] == "length" && reply["tokens"] == 24)) << line;
  }
  EXPECT_FALSE(std::getline(replies, line));
  EXPECT_EQ(generated({"--batch", folder / "prompts.jsonl", "--greedy", "--stop", "a "}), full);
  for (const char* batch_size : {"1", "2", "5"})
    EXPECT_EQ(generated({"--batch", folder / "prompts.txt", "--greedy", "--stop", "a ", "--together", batch_size}), full) << batch_size;
  EXPECT_EQ(generated({"--batch", folder / "prompts.txt", "--greedy", "--stop", "a ", "--together", "2"}, 2), full);
  EXPECT_EQ(generated({"--batch", folder / "prompts.txt", "--greedy", "--stop", "a ", "--data", "2"}, 2), full);
}

// Nearly uniform samples of a byte-level vocabulary contain every byte, also zero. JSON replaces bytes that are not UTF-8,
// of which zero is none.
TEST(generate, zero_bytes_are_printed_like_any_others) {
  const Folder folder;
  std::ofstream(folder / "prompt.txt") << "ka\n";
  const auto sampled = [&](const char* option, const std::string& prompt, int seed) {
    const Result r =
        run({"generate", Material::get().trained(), option, prompt, "--tokens", "200", "--temperature", "50", "--seed", std::to_string(seed)});
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out;
  };
  std::ptrdiff_t zeros = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    const std::string printed = sampled("--prompt", "ka", seed), line = sampled("--batch", (folder / "prompt.txt").string(), seed);
    const auto zeros_of = [](const std::string& text) { return std::count(text.begin(), text.end(), '\0'); };
    EXPECT_EQ(zeros_of(printed), zeros_of(nlohmann::json::parse(line).at("text").get<std::string>())) << "seed " << seed;
    zeros += zeros_of(printed);
  }
  EXPECT_GT(zeros, 0);
}

TEST(generate, malformed_prompt_file_is_refused) {
  const Folder folder;
  const auto refused = [&](const Words& more, Exit code, const std::string& part) {
    Words arguments{"generate", Material::get().trained()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result r = run(arguments);
    EXPECT_EQ(r.code, int(code)) << r.err;
    EXPECT_NE(r.err.find(part), r.err.npos) << r.err;
  };
  put_contents(folder / "empty.txt", "\n\n");
  put_contents(folder / "bad.jsonl", "{\"prompt\": \"ka\"}\n{\"text\": \"ka\"}\n");
  refused({"--batch", folder / "none.txt"}, Exit::missing, "none.txt");
  refused({"--batch", folder / "empty.txt"}, Exit::data, "empty.txt");
  refused({"--batch", folder / "bad.jsonl"}, Exit::data, "bad.jsonl:2");
  refused({}, Exit::usage, "--batch FILE");
  refused({"--prompt", "ka", "--batch", folder / "bad.jsonl"}, Exit::usage, "--batch");
}

// int8 weights must change the loss by less than 0.5 %.
TEST(generate, int8_weights_change_the_loss_little) {
  const auto file = Material::get().trained();
  const Score stored = score(file), int8 = score(file, {"--weights", "int8"});
  EXPECT_EQ(int8.tokens, stored.tokens);
  EXPECT_NE(int8.loss, stored.loss);
  EXPECT_NEAR(int8.loss, stored.loss, 5e-3 * stored.loss);
  const Words greedy{"--prompt", "ka", "--greedy", "--weights", "int8"};
  EXPECT_TRUE(generated(greedy).starts_with("ka"));
  Words stages = greedy;
  stages.insert(stages.end(), {"--pipeline", "2"});
  EXPECT_EQ(generated(stages, 2), generated(greedy));
}

TEST(generate, generate_returns_the_requested_number_of_tokens) {
  for (const char* count : {"1", "7"}) {
    const Result r = run({"generate", Material::get().trained(), "--prompt", "ka", "--greedy", "--tokens", count});
    std::smatch match;
    const std::regex line(
        R"(^prompt eval \d+ tokens? in ([0-9.]+) s, [0-9.]+ tokens/s; eval (\d+) tokens? in ([0-9.]+) s(, ([0-9.]+) tokens/s)?; total ([0-9.]+) s, (\d+) new tokens?\n)");
    ASSERT_TRUE(std::regex_search(r.err, match, line)) << r.err;
    EXPECT_EQ(match[7], count);
    EXPECT_EQ(std::stoi(match[2]), std::stoi(count) - 1) << "the first token belongs to the prompt: " << r.err;
    EXPECT_EQ(match[4].matched, std::string(count) != "1") << r.err;
    EXPECT_NEAR(std::stod(match[1]) + std::stod(match[3]), std::stod(match[6]), 0.011) << r.err;
  }
}

// Before the work begins, generate reports the prompts of a file and warns of prompts longer than the training's sequences.
TEST(generate, batch_reports_its_prompts_before_generation) {
  const Folder folder;
  std::string lines, long_prompt;
  for (int i = 0; i < 5; ++i) lines += "ka\n";
  for (int i = 0; i < 2 * Material::seq_length; ++i) long_prompt += "ka ";
  put_contents(folder / "prompts.txt", lines);
  const Words batch{"generate", Material::get().trained(), "--batch", folder / "prompts.txt", "--tokens", "1", "--greedy"};
  Words limited = batch;
  limited.insert(limited.end(), {"--limit", "3"});
  const Result all = must(batch), few = must(limited);
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 5);
  EXPECT_EQ(std::count(few.out.begin(), few.out.end(), '\n'), 3);
  EXPECT_NE(few.err.find("prompts.txt: 3 prompts, at most 1 new token each\n"), std::string::npos) << few.err;
  EXPECT_EQ(all.err.find("warning: "), std::string::npos) << all.err;
  const Result longer = must({"generate", Material::get().trained(), "--prompt", long_prompt, "--tokens", "1"});
  EXPECT_NE(longer.err.find("warning: the prompt is longer than the sequences of the training"), std::string::npos) << longer.err;
  const Result alone = run({"generate", Material::get().trained(), "--prompt", "ka", "--limit", "1"});
  EXPECT_EQ(alone.code, int(Exit::usage));
  EXPECT_NE(alone.err.find("--limit"), std::string::npos) << alone.err;
}

TEST(generate, other_tokenizer_is_warned_of) {
  const Folder folder;
  nlohmann::json tokenizer = nlohmann::json::parse(contents(Material::get().tokenizer()));
  put_contents(folder / "same.json", contents(Material::get().tokenizer()));
  tokenizer["added_tokens"] = nlohmann::json::array();
  put_contents(folder / "other.json", tokenizer.dump());
  const auto warning = [&](const char* file) {
    return must({"generate", Material::get().trained(), "--tokenizer", folder / file, "--prompt", "ka", "--tokens", "1"}).err;
  };
  EXPECT_EQ(warning("same.json").find("warning: "), std::string::npos);
  const std::string other = warning("other.json");
  for (const char* part : {"warning: --tokenizer", "other.json", "is not the model's tokenizer", "Leave out --tokenizer"})
    EXPECT_NE(other.find(part), std::string::npos) << other;
}

TEST(generate, evaluation_loss_is_the_same_on_every_grid) {
  const auto file = Material::get().trained();
  const Score one = score(file);
  EXPECT_GT(one.sequences, 100);
  EXPECT_LE(one.tokens, one.sequences * Material::seq_length);
  EXPECT_GT(one.tokens, (one.sequences - 1) * Material::seq_length);  // the last sequence holds the remaining tokens after the full windows
  EXPECT_NEAR(std::log(one.perplexity), one.loss, 1e-5);
  EXPECT_LT(one.loss, 4);
  EXPECT_NEAR(score(file, {"--tensor", "2"}, 2).loss, one.loss, 1e-6 * one.loss);
  const Score data = score(file, {}, 2);
  EXPECT_NEAR(data.loss, one.loss, 1e-6 * one.loss);
  EXPECT_EQ(data.tokens, one.tokens);
  // One window on two data-parallel ranks: the idle rank must add nothing.
  const Score few = score(file, {"--sequences", "1"}), shared = score(file, {"--sequences", "1", "--tensor", "1"}, 2);
  EXPECT_EQ(few.sequences, 1);
  EXPECT_EQ(shared.tokens, few.tokens);
  EXPECT_NEAR(shared.loss, few.loss, 1e-6 * few.loss);
}

// The logits of a freshly initialised model have a standard deviation of a few hundredths, which changes the loss by
// less than 0.01.
TEST(generate, untrained_loss_is_the_log_of_vocab_size) {
  const Folder folder;
  ASSERT_EQ(run(Material::get().train(folder.path(), {"train.steps=1", "optimizer.lr=0", "optimizer.weight_decay=0"})).code, 0);
  EXPECT_NEAR(score(Material::checkpoint(folder.path(), 1)).loss, std::log(double(Material::vocab_size)), 0.02);
}

// Special tokens spelt in the prompt are encoded as such unless --plain is given, so the two prompts differ.
TEST(generate, plain_option_disables_special_tokens_in_prompts) {
  const Words prompt{"--prompt", "ka<|endoftext|>lo", "--greedy"};
  Words plain = prompt;
  plain.push_back("--plain");
  EXPECT_NE(generated(prompt), generated(plain));
  EXPECT_EQ(generated({"--prompt", "ka", "--greedy"}), generated({"--prompt", "ka", "--greedy", "--plain"}));
}

// Evaluation does not use the training batch size, so any number of ranks is possible.
TEST(generate, evaluation_works_on_any_number_of_ranks) {
  const Score single_rank = score(Material::get().trained(), {"--data", Material::get().prefix(), "--limit", "12"});
  for (const int ranks : {3, 5}) {
    const Score shared = score(Material::get().trained(), {"--data", Material::get().prefix(), "--limit", "12"}, ranks);
    EXPECT_NEAR(shared.loss, single_rank.loss, 1e-5 * single_rank.loss);
    EXPECT_EQ(shared.tokens, single_rank.tokens);
  }
}

TEST(generate, empty_prompt_without_end_of_text_is_refused) {
  const Folder folder;
  nlohmann::json tokenizer = nlohmann::json::parse(contents(Material::get().tokenizer()));
  tokenizer["added_tokens"] = nlohmann::json::array();
  put_contents(folder / "no_end.json", tokenizer.dump());
  const auto ask = [&](const std::string& file, const std::string& prompt) {
    return run({"generate", Material::get().trained(), "--tokenizer", file, "--prompt", "ka", "--prompt", prompt, "--tokens", "4", "--greedy"});
  };
  const Result r = ask(folder / "no_end.json", "");
  EXPECT_EQ(r.code, int(Exit::usage)) << r.out << r.err;
  EXPECT_NE(r.err.find("--prompt ''"), r.err.npos) << r.err;
  EXPECT_NE(r.err.find("end-of-text"), r.err.npos) << r.err;
  put_contents(folder / "prompts.jsonl", "{\"prompt\": \"ka\"}\n{\"prompt\": \"\"}\n");
  const Result b = run({"generate", Material::get().trained(), "--tokenizer", folder / "no_end.json", "--batch", folder / "prompts.jsonl"});
  EXPECT_EQ(b.code, int(Exit::usage)) << b.out << b.err;
  EXPECT_NE(b.err.find("prompts.jsonl: prompt 2"), b.err.npos) << b.err;
  EXPECT_EQ(ask(Material::get().tokenizer(), "").code, 0);
}

// A SentencePiece-style tokenizer: token i is the word "ti" with a space before it.
std::string word_tokenizer() {
  nlohmann::json vocab = {{"<unk>", 0}, {"\u2581", 1}, {"k", 2}, {"a", 3}};
  for (int id = 4; id < 300; ++id) vocab["\u2581t" + std::to_string(id)] = id;
  const nlohmann::json mark = {{"type", "Prepend"}, {"prepend", "\u2581"}},
                       spaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}},
                       marks = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                       strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  return nlohmann::json{
      {"added_tokens", nlohmann::json::array({{{"id", 0}, {"content", "<unk>"}, {"special", true}}})},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", {mark, spaces}}}},
      {"pre_tokenizer", nullptr},
      {"decoder", {{"type", "Sequence"}, {"decoders", {marks, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip}}}},
      {"model",
       {{"type", "BPE"}, {"unk_token", "<unk>"}, {"fuse_unk", true}, {"byte_fallback", true}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

// The decoder of SentencePiece removes the space before the first token of a text. A response is not the start of one.
TEST(generate, response_keeps_the_space_of_its_first_word) {
  const Folder folder;
  put_contents(folder / "words.json", word_tokenizer());
  const std::string file = folder / "words.json";
  const std::string text = generated({"--tokenizer", file, "--prompt", "ka", "--greedy"});
  EXPECT_TRUE(text.starts_with("ka t")) << text;
  const Result chat = run({"generate", Material::get().trained(), "--tokenizer", file, "--prompt", "ka", "--greedy", "--tokens", "24", "--template",
                           "{prompt}{response}"});
  EXPECT_TRUE(chat.out.starts_with("ka\nt")) << chat.out << chat.err;  // the reply of a template is a text of its own, on its own line
}

TEST(generate, replicas_that_do_not_divide_ranks_are_refused) {
  const Result r = run({"generate", Material::get().trained(), "--prompt", "ka", "--data", "2", "--pipeline", "3"}, {.ranks = 2});
  EXPECT_EQ(r.code, int(Exit::config));
  EXPECT_NE(r.err.find("--data 2 x --pipeline 3 does not divide the 2 ranks; start a multiple of 6"), std::string::npos) << r.err;
}

TEST(generate, absurd_token_counts_and_lengths_are_refused) {
  for (const char* tokens : {"9223372036854775807", "16777216"}) {
    const Result r = run({"generate", Material::get().trained(), "--prompt", "ka", "--tokens", tokens});
    EXPECT_EQ(r.code, int(Exit::usage)) << r.out << r.err;
    EXPECT_NE(r.err.find(std::string("--tokens ") + tokens), r.err.npos) << r.err;
  }
  const Result r = run({"eval", Material::get().trained(), "--data", Material::get().prefix(), "--length", "9223372036854775807"});
  EXPECT_EQ(r.code, int(Exit::usage)) << r.out << r.err;
  EXPECT_NE(r.err.find("--length 9223372036854775807"), r.err.npos) << r.err;
}

}  // namespace gyr::testing::generate_suite
