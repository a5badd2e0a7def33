// SPDX-License-Identifier: BSD-3-Clause
#include "regression/support/material.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace gyr::testing {

namespace {

constexpr const char* deck_text = R"(model:
  pattern: P x 2
  vocab_size: 300
  hidden_size: 32
  attention:
    num_heads: 4
    num_kv_heads: 2
    head_dim: 8
    rope_theta: 1e4
  mamba:
    num_heads: 4
    head_dim: 8
    state_size: 8
    chunk_size: 16
    norm: gate_first
  mlp:
    intermediate_size: 64
data:
  prefixes: [{FOLDER}/text]
  tokenizer: {FOLDER}/tokenizer.json
  split: "90,10,0"
train:
  steps: 60
  global_batch_size: 8
  seq_length: 32
optimizer:
  lr: 1e-2
  warmup_steps: 4
checkpoint:
  every: 30
output:
  folder: {FOLDER}/out
)";

// Documents in which each word mostly determines the next one, so that a model learns within seconds.
std::string sentences() {
  std::mt19937 random(7);
  const Words syllables{"ka", "lo", "mi", "ren", "tu", "sha", "ven", "or", "ith", "dal", "pe", "qua"};
  Words words(150);
  for (std::string& word : words)
    for (unsigned n = 1 + random() % 3; n > 0; --n) word += syllables[random() % syllables.size()];
  std::string text;
  for (int document = 0; document < 600; ++document) {
    std::size_t word = random() % words.size();
    for (int i = 0; i < 70; ++i, word = (word * 7 + 1 + random() % 2) % words.size()) text += words[word] + " ";
    text.back() = '.';
    text += "\n\n";
  }
  return text;
}

void must(const Words& arguments) {
  const Result r = run(arguments);
  ensure(r.code == 0, "gyrfalcon {} {}: exit code {}\n{}{}", arguments[0], arguments[1], r.code, r.out, r.err);
}

}  // namespace

const Material& Material::get() {
  static const Material material;
  return material;
}

Material::Material() {
  put_contents(text(), sentences());
  std::string deck_of_folder = deck_text;
  const std::string mark = "{FOLDER}";
  for (auto at = deck_of_folder.find(mark); at != std::string::npos; at = deck_of_folder.find(mark))
    deck_of_folder.replace(at, mark.size(), folder_.path());
  put_contents(deck(), deck_of_folder);
  must({"tokenizer", "train", tokenizer(), text(), "--vocab-size", std::to_string(vocab_size), "--documents", "separator"});
  must({"data", "build", text(), prefix(), "--tokenizer", tokenizer(), "--documents", "separator"});
  must({"train", deck()});
}

Words Material::train(const std::filesystem::path& output, const Words& changes) const {
  Words words{"train", deck(), "output.folder=" + output.string()};
  words.insert(words.end(), changes.begin(), changes.end());
  return words;
}

std::filesystem::path Material::checkpoint(const std::filesystem::path& output, int step) {
  return output / "checkpoints" / fmt::format("step_{:08}", step);
}

nlohmann::json json_in(const std::filesystem::path& file) { return nlohmann::json::parse(contents(file), nullptr, false); }

std::vector<nlohmann::json> metrics(const std::filesystem::path& output, const std::string& kind) {
  std::vector<nlohmann::json> found;
  for (const std::string& line : lines_of(contents(output / "metrics.jsonl")))
    if (auto json = nlohmann::json::parse(line, nullptr, false); json.is_object() && json.value("kind", "") == kind) found.push_back(std::move(json));
  return found;
}

std::map<int, double> losses(const std::filesystem::path& output) {
  std::map<int, double> series;
  for (const auto& step : metrics(output, "step"))
    series[step.at("step")] = step.at("loss").is_number() ? double(step.at("loss")) : std::numeric_limits<double>::quiet_NaN();
  return series;
}

void expect_bitwise_equal_runs(const std::filesystem::path& a, const std::filesystem::path& b, int steps) {
  const Result r = run({"diff", Material::checkpoint(a, steps), Material::checkpoint(b, steps), "--tolerance", "0"});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  const auto left = losses(a), right = losses(b);
  EXPECT_EQ(left.size(), std::size_t(steps));
  EXPECT_EQ(left, right);
}

}  // namespace gyr::testing
