// SPDX-License-Identifier: BSD-3-Clause
// Tests of `gyrfalcon eval` with --text, --lambada and --choices against results of transformers
// (huggingface_evaluation.py), on any number of ranks, and tests of its output files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "regression/support/material.hpp"

namespace gyr::testing::evaluation_suite {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

const fs::path golden = GYR_SOURCE_DIR "/regression/golden/huggingface_evaluation";

const Json& expected(std::size_t number) {
  static const Json all = Json::parse(std::ifstream(golden / "expected.json"));
  return all.at("runs").at(number);
}
std::size_t first_with(const std::string& option) {
  for (std::size_t i = 0;; ++i)
    if (expected(i).at("arguments").at(0) == option) return i;
}

struct Evaluated {
  Json summary;
  std::vector<Json> records;
  std::string text;
};

Evaluated evaluate(const fs::path& model, const Words& more, int ranks = 0) {
  const Folder folder;
  Words words{"eval", model, "--overwrite", "--json", folder / "summary.json", "--records", folder / "records.jsonl"};
  words.insert(words.end(), more.begin(), more.end());
  const Result r = run(words, {.ranks = ranks});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  Evaluated e{Json::parse(contents(folder / "summary.json")), {}, r.out};
  EXPECT_EQ(lines_of(contents(folder / "summary.json")).size(), 1u);
  for (const std::string& line : lines_of(contents(folder / "records.jsonl"))) e.records.push_back(Json::parse(line));
  return e;
}

void expect_near(const Json& a, const Json& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size()) << a << b;
  for (const auto& [key, value] : b.items()) {
    if (value.is_number_float())
      EXPECT_NEAR(a.at(key).get<double>(), value.get<double>(), tolerance * std::max(1.0, std::abs(value.get<double>()))) << key;
    else EXPECT_EQ(a.at(key), value) << key;
  }
}

Words arguments(const Json& run) {
  Words words;
  for (const Json& word : run.at("arguments")) {
    const std::string text = word;
    words.push_back(fs::exists(golden / text) && text.find('.') != std::string::npos ? (golden / text).string() : text);
  }
  return words;
}

}  // namespace

// Evaluates a folder written by transformers directly, with the tokenizer in that folder.
TEST(evaluation, results_equal_transformers_on_one_and_two_ranks) {
  for (const char* task : {"--text", "--lambada", "--choices"}) {
    const Json& run = expected(first_with(task));
    const Evaluated one = evaluate(golden, arguments(run));
    expect_near(one.summary.at("results"), run.at("results"), 1e-5);
    EXPECT_EQ(one.records.size(), run.at("records").size());
    EXPECT_EQ(one.summary.at("task"), std::string(task).substr(2));
    const Evaluated two = evaluate(golden, arguments(run), 2);
    EXPECT_EQ(two.summary.at("grid"), Json({{"data", 2}, {"pipeline", 1}, {"tensor", 1}}));
    EXPECT_EQ(two.text, one.text);
    expect_near(two.summary.at("results"), one.summary.at("results"), 1e-6);
  }
}

TEST(evaluation, results_are_equal_with_tensor_or_pipeline_parallelism) {
  const Words words = arguments(expected(first_with("--lambada")));
  const Evaluated one = evaluate(golden, words);
  for (const Words& layout : {Words{"--tensor", "2"}, Words{"--pipeline", "2"}}) {
    Words more = words;
    more.insert(more.end(), layout.begin(), layout.end());
    expect_near(evaluate(golden, more, 2).summary.at("results"), one.summary.at("results"), 1e-5);
  }
}

// Evaluating token files writes a JSON summary whose mean loss equals the mean over the records.
TEST(evaluation, token_file_summary_agrees_with_its_records) {
  const Evaluated e = evaluate(Material::get().trained(), {"--limit", "9"});
  const Json& r = e.summary.at("results");
  EXPECT_EQ(r.at("sequences"), 9);
  EXPECT_EQ(r.at("tokens"), 9 * Material::seq_length);
  EXPECT_EQ(e.summary.at("split"), "validation");
  EXPECT_NE(e.text.find("\nscored: validation split of " + e.summary.at("files").at(0).get<std::string>() + "\n"), std::string::npos) << e.text;
  EXPECT_EQ(e.records.size(), 9u);
  double sum = 0;
  for (const Json& record : e.records) sum += record.at("loss").get<double>() / 9;
  EXPECT_NEAR(sum, r.at("loss").get<double>(), 1e-12);
  EXPECT_NEAR(std::exp(r.at("loss").get<double>()), r.at("perplexity").get<double>(), 1e-9);
}

// Every token that has a predecessor is scored: the token count must not depend on the window length or on the number
// of ranks. This includes the short last window, and documents that are masked from each other.
TEST(evaluation, every_token_is_scored_for_any_window_length) {
  const Folder folder;
  ASSERT_EQ(run(Material::get().train(folder.path(), {"train.steps=1", "data.documents=separate", "train.eval_every=0"})).code, 0);
  for (const bool separate : {false, true}) {
    const fs::path model = separate ? Material::checkpoint(folder.path(), 1) : Material::get().trained();
    std::int64_t tokens = 0;
    for (const std::int64_t length : {50, 77, 333}) {
      const auto results = [&](int ranks) {
        return evaluate(model, {"--data", Material::get().prefix(), "--length", std::to_string(length)}, ranks).summary.at("results");
      };
      const Json one = results(0), two = results(2);
      if (tokens == 0) tokens = one.at("tokens").get<std::int64_t>();
      EXPECT_EQ(one.at("tokens"), tokens);
      EXPECT_EQ(two.at("tokens"), tokens);
      EXPECT_NEAR(two.at("loss").get<double>(), one.at("loss").get<double>(), 1e-6);
      if (!separate) {
        EXPECT_EQ(one.at("sequences").get<std::int64_t>(), (tokens + length - 1) / length);
      }
    }
  }
}

// Reads the logits file with HDF5's own tools. Its rows follow the records' windows; two ranks write the same datasets
// and shapes.
TEST(evaluation, logits_file_is_readable_with_hdf5_tools) {
  const Folder folder;
  for (const int ranks : {0, 2}) {
    const Evaluated e = evaluate(Material::get().trained(), {"--limit", "3", "--logits", folder / "logits.h5"}, ranks);
    EXPECT_EQ(e.summary.at("results").at("sequences"), 3);
    const Result listed = execute({"/usr/bin/env", "h5ls", folder / "logits.h5"});
    EXPECT_EQ(listed.out,
              "labels                   Dataset {96}\nlogits                   Dataset {96, 300}\noffsets                  Dataset {4}\n"
              "tokens                   Dataset {96}\n")
        << listed.err;
    const Result dumped = execute({"/usr/bin/env", "h5dump", "-y", "-w", "0", "-d", "/offsets", folder / "logits.h5"});
    EXPECT_NE(dumped.out.find("0, 32, 64, 96"), std::string::npos) << dumped.out;
    EXPECT_EQ(folder.files(), 1u);
  }
  const Result r = run({"eval", Material::get().trained(), "--limit", "3", "--logits", folder / "absent/logits.h5"});
  EXPECT_EQ(r.code, int(Exit::io)) << r.err;
  EXPECT_NE(r.err.find("absent/logits.h5"), std::string::npos) << r.err;
}

// A smaller stride gives each token more context and a lower loss, but the token count stays. In a single window the
// stride has no effect.
TEST(evaluation, stride_changes_only_the_context_of_tokens) {
  const auto& m = Material::get();
  const Folder folder;
  folder.write("short.txt", contents(m.text()).substr(0, 3000));
  const auto with = [&](const char* length, const char* stride) {
    return evaluate(m.trained(), {"--text", folder / "short.txt", "--length", length, "--stride", stride}).summary.at("results");
  };
  const Json far = with("4", "4"), near = with("4", "1"), full = with("4000", "4000"), same = with("4000", "7");
  for (const char* count : {"tokens", "words", "bytes", "documents"}) EXPECT_EQ(far.at(count), near.at(count));
  EXPECT_LT(near.at("loss").get<double>(), far.at("loss").get<double>());
  EXPECT_EQ(full, same);
  EXPECT_EQ(full.at("windows"), 1);
}

namespace {

// Overwrites one element of a tensor in model.safetensors.
void put_number(const fs::path& folder, const std::string& tensor, std::size_t number, float value) {
  const fs::path file = folder / "model.safetensors";
  std::string bytes = contents(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const Json entry = Json::parse(bytes.substr(8, length)).at(tensor);
  ASSERT_EQ(entry["dtype"], "F32");
  const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1], at = begin + 4 * number % (end - begin);
  std::memcpy(bytes.data() + 8 + length + at, &value, 4);
  put_contents(file, bytes);
}

}  // namespace

// A NaN or Inf in any weight must end every evaluation task and every generation with an error, on any grid.
TEST(evaluation, nan_or_inf_weight_ends_evaluation_with_error) {
  const Folder folder;
  const Material& m = Material::get();
  ASSERT_EQ(run({"export-hf", m.trained(), folder / "model", "--dtype", "fp32"}).code, 0);
  folder.write("words.jsonl", "{\"text\": \"ka mi ka\"}\n");
  folder.write("choices.jsonl", "{\"context\": \"ka\", \"choices\": [\" mi\", \" ka\"], \"answer\": 0}\n");
  const std::vector<Words> tasks{
      {"eval", "--data", m.prefix(), "--limit", "4"}, {"eval", "--text", m.text(), "--documents", "separator", "--limit", "1"},
      {"eval", "--lambada", folder / "words.jsonl"},  {"eval", "--choices", folder / "choices.jsonl"},
      {"generate", "--prompt", "ka", "--greedy"},     {"generate", "--prompt", "ka", "--prompt", "mi"}};
  const std::string weights[] = {"model.layers.0.mamba.in_proj.weight", "model.layers.1.self_attn.q_proj.weight",
                                 "model.layers.0.mamba.A_log",          "model.layers.1.feed_forward.down_proj.weight",
                                 "model.final_layernorm.weight",        "lm_head.weight"};
  const std::string full = contents(folder / "model/model.safetensors");
  std::mt19937 random(3);
  for (const Words& task : tasks) {
    Words words{task[0], folder / "model"};
    words.insert(words.end(), task.begin() + 1, task.end());
    const std::string weight = weights[random() % std::size(weights)];
    const float value = weight == weights[4] && random() % 2 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    const int ranks = random() % 2 ? 0 : 2;
    if (ranks > 0) words.insert(words.end(), {"--pipeline", "2"});
    SCOPED_TRACE(fmt::format("{} {} of {} with {} in {} on {} ranks", task[0], task[1], task.back(), value, weight, ranks));
    put_contents(folder / "model/model.safetensors", full);
    EXPECT_EQ(run(words, {.ranks = ranks}).code, 0);
    put_number(folder / "model", weight, random(), value);
    const Result r = run(words, {.ranks = ranks});
    EXPECT_EQ(r.code, int(Exit::numeric)) << r.out << r.err;
    EXPECT_NE(r.err.find("finite"), std::string::npos) << r.err;
    const std::vector<std::string> lines = lines_of(r.err);
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return !line.starts_with("note: "); }), 1) << r.err;
    if (task[0] == "eval") {
      EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 80")) << r.out;
    }
  }
}

}  // namespace gyr::testing::evaluation_suite
