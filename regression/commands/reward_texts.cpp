// SPDX-License-Identifier: BSD-3-Clause
// Policy training with a reward model that has another tokenizer than the policy, or a template: it values the same texts as eval, on any
// grid and after a resume, and settings with which it would read other texts are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "regression/support/material.hpp"
#include "regression/support/seed.hpp"

namespace gyr::testing::reward_texts_suite {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A policy with a tokenizer of bytes, and a reward model with the tokenizer of Material.
struct Models {
  Folder folder;
  fs::path tokenizer = folder / "tokenizer.json", prefix = folder / "prompts", policy = folder / "policy", reward = folder / "reward";
  fs::path deck = fs::path(GYR_SOURCE_DIR) / "input/policy-digits.yaml";
  std::mt19937 random{std::mt19937::result_type(seed_of_run())};

  Models() {
    must({"tokenizer", "train", tokenizer, Material::get().text(), "--vocab-size", "262"});
    std::string prompts, pairs;
    for (int i = 0; i < 6; ++i) {
      prompts += Json{{"prompt", text() + std::to_string(i)}, {"target", 3}, {"question", text()}, {"number", i}}.dump() + "\n";
      pairs += Json{{"prompt", text()}, {"chosen", text()}, {"rejected", text()}}.dump() + "\n";
    }
    put_contents(folder / "prompts.jsonl", prompts);
    put_contents(folder / "pairs.jsonl", pairs);
    must({"data", "build", folder / "prompts.jsonl", prefix, "--prompts", "--tokenizer", tokenizer});
    must({"data", "build", folder / "pairs.jsonl", folder / "pairs", "--pairs", "--tokenizer", Material::get().tokenizer()});
    const Words rewarding{"data.prefixes=[" + (folder / "pairs").string() + "]",
                          "data.order=documents",
                          "data.documents=separate",
                          "data.split=\"1\"",
                          "train.objective=reward",
                          "train.init_from=" + Material::get().trained().string(),
                          "train.init_head=new",
                          "train.seq_length=64",
                          "train.steps=3",
                          "train.global_batch_size=2"};
    must(Material::get().train(reward, rewarding));
    must(with(training(policy), {"rl.iterations=1"}));
  }
  static void must(const Words& words) {
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << words[0] << " " << words[1] << "\n" << r.out << r.err;
  }
  std::string text() {
    const Words syllables{"ka", "lo", "mi", " ren", " tu", " sha"};
    std::string text;
    for (unsigned n = 1 + random() % 5; n > 0; --n) text += syllables[random() % syllables.size()];
    return text;
  }
  // Many end tokens, so that some answers end and others are truncated.
  Words settings() const {
    std::string ends;
    for (int id = 60; id < 95; ++id) ends += (ends.empty() ? "" : ", ") + std::to_string(id);
    return {"model.vocab_size=262",
            "data.prefixes=[" + prefix.string() + "]",
            "data.tokenizer=" + tokenizer.string(),
            "train.precision=fp64",
            "rl.generate.end_tokens=[" + ends + "]",
            "rl.generate.max_new_tokens=8",
            "rl.seed=" + std::to_string(seed_of_run())};
  }
  Words training(const fs::path& output, const Words& more = {}) const {
    return with(with({"train", deck, "output.folder=" + output.string()}, settings()), more);
  }
  Words judge(const Words& more) const {
    return with({"models.judge.init_from=" + reward.string(), "rl.rewards.judge.type=model", "rl.rewards.judge.model=judge"}, more);
  }
  Result rollout(const Words& more, int ranks = 0) const {
    return run(with(with({"rollout", deck, "--init-from", policy, "--samples", "4"}, settings()), judge(more)), {.ranks = ranks});
  }
};

const Models& models() {
  static const Models all;
  return all;
}

std::vector<Json> answers_in(const Result& r) {
  EXPECT_EQ(r.code, 0) << r.err;
  std::vector<Json> answers;
  for (const std::string& line : lines_of(r.out)) {
    Json& a = answers.emplace_back(Json::parse(line));
    std::string text = a.at("answer");
    if (a.at("ended") == true) text.pop_back();  // the end tokens of these runs are letters, which no reward reads
    a["answer"] = text;
  }
  return answers;
}

double value_of(const Json& answer) { return answer.at("rewards").at("judge"); }

// Values that the reward model itself gives to the texts under `chosen`, with or without an end token.
std::vector<double> values_by_eval(const std::vector<Json>& pairs, bool with_end) {
  const Folder folder;
  std::string lines;
  for (const Json& pair : pairs) lines += pair.dump() + "\n";
  put_contents(folder / "pairs.jsonl", lines);
  Words build{"data", "build", folder / "pairs.jsonl", folder / "pairs", "--pairs", "--tokenizer", Material::get().tokenizer()};
  if (!with_end) build.push_back("--no-end");
  Models::must(build);
  Models::must({"eval", models().reward, "--data", folder / "pairs", "--length", "128", "--precision", "fp64", "--records", folder / "records"});
  std::vector<double> values(pairs.size());
  for (const std::string& line : lines_of(contents(folder / "records")))
    if (const Json record = Json::parse(line); record.contains("pair")) values.at(record["pair"]) = record["chosen"];
  return values;
}

// Answers that the policy ended, or that were truncated. A pair has no empty text.
std::vector<Json> ended_or_not(const std::vector<Json>& all, bool ended) {
  std::vector<Json> answers;
  for (const Json& a : all)
    if (a.at("ended") == ended && !a.at("answer").get<std::string>().empty()) answers.push_back(a);
  EXPECT_FALSE(answers.empty()) << "ended " << ended;
  return answers;
}

// Expects the values of eval for texts with `before` and `between` around the prompt. Only an answer that ended has an end token.
void expect_values_of_eval(const std::vector<Json>& all, const std::string& before, const std::string& between) {
  for (const bool ended : {true, false}) {
    const std::vector<Json> answers = ended_or_not(all, ended);
    std::vector<Json> pairs;
    for (const Json& a : answers)
      pairs.push_back({{"prompt", before + a.at("prompt").get<std::string>() + between}, {"chosen", a.at("answer")}, {"rejected", "ka"}});
    const std::vector<double> values = values_by_eval(pairs, ended);
    for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_NEAR(value_of(answers[i]), values[i], 1e-10) << answers[i];
  }
}

TEST(reward_texts, values_equal_eval_of_the_decoded_texts) {
  const std::vector<Json> plain = answers_in(models().rollout({"rl.rewards.judge.template=\"{prompt}{response}\""}));
  ASSERT_EQ(plain.size(), 24u);
  expect_values_of_eval(plain, "", "");
  const std::vector<Json> formatted = answers_in(models().rollout({"rl.rewards.judge.template=\"Q {prompt} A {response}\""}));
  expect_values_of_eval(formatted, "Q ", " A ");
  double difference = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) difference += std::abs(value_of(plain[i]) - value_of(formatted[i]));
  EXPECT_GT(difference, 1e-3) << "the template has an effect";
}

TEST(reward_texts, values_are_equal_on_every_grid) {
  const Words text{"rl.rewards.judge.template=\"{prompt}{response}\""};
  const std::vector<Json> one = answers_in(models().rollout(text));
  for (const Words& grid :
       {Words{"parallel.tensor=2"}, {"models.judge.ranks=1", "models.judge.seq_length=40"}, {"models.judge.micro_batch_size=4"}}) {
    const std::vector<Json> two = answers_in(models().rollout(with(text, grid), 2));
    ASSERT_EQ(two.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(value_of(two[i]), value_of(one[i]), 1e-10) << grid[0] << one[i];
  }
}

// A folder with a chat template needs no template in the deck. Its text is encoded as a unit and ends as the template writes it.
TEST(reward_texts, chat_template_formats_the_conversation) {
  const Folder folder;
  ASSERT_EQ(run({"export-hf", models().reward, folder / "hf"}).code, 0);
  put_contents(folder / "hf/chat_template.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}.{% endfor %}");
  const std::string from = "models.judge.init_from=" + (folder / "hf").string();
  const std::vector<Json> questions = [] {
    std::vector<Json> lines;
    for (const std::string& line : lines_of(contents(models().folder / "prompts.jsonl"))) lines.push_back(Json::parse(line));
    return lines;
  }();
  for (const bool of_field : {false, true}) {
    const std::vector<Json> answers = answers_in(models().rollout(of_field ? Words{from, "rl.rewards.judge.field=question"} : Words{from}));
    std::vector<Json> pairs;
    for (const Json& a : answers) {
      std::string prompt = a.at("prompt");
      if (of_field)
        prompt = std::find_if(questions.begin(), questions.end(), [&](const Json& q) { return q.at("prompt") == a.at("prompt"); })->at("question");
      pairs.push_back({{"chosen", "<user>" + prompt + ".<assistant>" + a.at("answer").get<std::string>() + "."}, {"rejected", "ka"}});
    }
    const std::vector<double> values = values_by_eval(pairs, false);
    for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_NEAR(value_of(answers[i]), values[i], 1e-10) << answers[i] << of_field;
  }
}

TEST(reward_texts, run_with_texts_resumes_bit_for_bit) {
  const fs::path whole = models().folder / "whole", parts = models().folder / "parts";
  const Words settings =
      models().judge({"rl.rewards.judge.template=\"{prompt} {response}\"", "rl.iterations=4", "rl.prompts=2", "rl.num_generations=4",
                      "rl.minibatches=2", "train.micro_batch_size=1", "checkpoint.every=1", "checkpoint.keep=9"});
  const Result first = run(models().training(whole, settings));
  ASSERT_EQ(first.code, 0) << first.err;
  const int killed = 3 + int(std::mt19937(seed_of_run())() % 5);
  EXPECT_NE(run(models().training(parts, with(settings, {"fault.kind=kill", fmt::format("fault.step={}", killed)}))).code, 0);
  const Result r = run(models().training(parts, with(settings, {"--resume"})));
  ASSERT_EQ(r.code, 0) << "killed before step " << killed << "\n" << r.err;
  const Result same = run({"diff", whole / "checkpoints/step_00000008", parts / "checkpoints/step_00000008"});
  EXPECT_EQ(same.code, 0) << "killed before step " << killed << "\n" << same.out;
}

TEST(reward_texts, texts_of_other_formats_are_refused) {
  const fs::path formatted = models().folder / "formatted";
  Models::must({"data", "build", models().folder / "prompts.jsonl", formatted, "--prompts", "--tokenizer", models().tokenizer, "--template",
                "{prompt}?{response}"});
  const std::string text = "rl.rewards.judge.template=\"{prompt}{response}\"", prompts = "data.prefixes=[" + formatted.string() + "]";
  struct Case {
    Words words;
    Exit code;
    std::string message;
  };
  const std::vector<Case> wrong{
      {{}, Exit::config, "has no chat template; write the format of its texts in rl.rewards.judge.template, such as \"{prompt}{response}\""},
      {{"rl.rewards.judge.template=\"{promt}{response}\""},
       Exit::config,
       "rl.rewards.judge.template: template, character 1: there is no placeholder"},
      {{text, prompts}, Exit::config, "its prompts have the format of the policy (--template {prompt}?{response}), which models.judge does not read"},
      {{text, "models.judge.seq_length=3"}, Exit::data, "and the windows of models.judge have 3; set models.judge.seq_length to"},
      {{text, "rl.rewards.judge.field=absent"}, Exit::data, "line 1 of"},
      {{text, "rl.rewards.judge.field=number"}, Exit::data, "the field must be a text, because the template has {prompt}"},
      {{text, "rl.rewards.digit.template=a"}, Exit::config, "type tokens does not read template"},
      {{"models.judge.init_from=" + models().policy.string()}, Exit::config, "gives texts no value"}};
  for (const Case& c : wrong) {
    const Result r = models().rollout(c.words);
    EXPECT_EQ(r.code, int(c.code)) << c.message << "\n" << r.err;
    EXPECT_NE(r.err.find(c.message), std::string::npos) << c.message << "\n" << r.err;
  }
}

}  // namespace
}  // namespace gyr::testing::reward_texts_suite
