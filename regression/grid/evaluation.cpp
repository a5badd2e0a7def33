// SPDX-License-Identifier: BSD-3-Clause
// Evaluations of a trained model on any grid must equal those that transformers and tokenizers computed for
// huggingface_evaluation.py, one passage at a time. Counts must be equal, and other figures must agree to single
// precision.
#include <cmath>
#include <fstream>

#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/evaluation/evaluation.hpp"
#include "src/evaluation/scorer.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::evaluation_suite {
namespace {

const std::filesystem::path folder = GYR_SOURCE_DIR "/regression/golden/huggingface_evaluation";

const Json& runs() {
  static const Json all = Json::parse(std::ifstream(folder / "expected.json"));
  return all.at("runs");
}

// Evaluation that the arguments of `gyrfalcon eval` select.
std::unique_ptr<Evaluation> evaluation_of(const Json& arguments) {
  static const Tokenizer tokenizer = Tokenizer::load(folder / "tokenizer.json");
  std::map<std::string, std::string> options{{"--begin", "auto"}};
  for (std::size_t i = 0; i < arguments.size(); i += 2) options[arguments[i]] = arguments[i + 1];
  const Index seq_length = std::stol(options.at("--length"));
  const TextSettings settings{tokenizer, 310, seq_length, options["--begin"] == "none" ? std::nullopt : tokenizer.eod()};
  if (options.contains("--text")) return text_evaluation({folder / options["--text"]}, {}, std::stol(options.at("--stride")), settings);
  if (options.contains("--lambada")) return last_word_evaluation(folder / options["--lambada"], settings);
  return choices_evaluation(folder / options.at("--choices"), " ", settings);
}

void expect_same(const Json& ours, const Json& expected, double tolerance, const std::string& where) {
  ASSERT_EQ(ours.size(), expected.size()) << where;
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) expect_same(ours.at(key), value, tolerance, where + " " + key);
  } else if (expected.is_array()) {
    for (std::size_t i = 0; i < expected.size(); ++i) expect_same(ours[i], expected[i], tolerance, fmt::format("{}[{}]", where, i));
  } else if (expected.is_number_float()) {
    EXPECT_NEAR(ours.get<double>(), expected.get<double>(), tolerance * std::max(1.0, std::abs(expected.get<double>()))) << where;
  } else {
    EXPECT_EQ(ours, expected) << where;
  }
}

Grid* grid_with(int data, int pipeline, int tensor) {
  std::vector<Span> stages{{0, 1}, {1, 2}};
  if (pipeline == 1) stages = {{0, 2}};
  return grid_of(grid_layout(data, pipeline, tensor, stages));
}

template <class T>
Conclusion conclusion(const Evaluation& evaluation, Grid& grid, const BatchLimits& limits) {
  static const ModelConfig model = read_config_json(folder / config_file_name).model;
  const Fill fill = [&](Stage& stage) { load_weights(folder, grid, stage.config(), stage.parameters().all()); };
  return evaluation.conclude(score_passages(model, dtype_of<T>(), grid, fill, evaluation.passages(), limits));
}

class evaluation : public ::testing::TestWithParam<int> {
 protected:
  const Json& run = runs()[std::size_t(GetParam())];
};

TEST_P(evaluation, evaluation_equals_transformers) {
  const auto asked = evaluation_of(run["arguments"]);
  if (Grid* grid = grid_with(1, 1, 1)) {
    const Conclusion c = conclusion<float>(*asked, *grid, {});
    expect_same(c.results, run["results"], 1e-5, run["arguments"].dump());
    expect_same(c.records, run["records"], 1e-5, run["arguments"].dump());
  }
  sync_ranks();
}

struct Setting {
  int data, pipeline, tensor;
  BatchLimits limits;
};

// In double precision only the order of sums can differ. Every value of every record must agree.
TEST_P(evaluation, evaluation_is_independent_of_grid_and_batches) {
  const auto asked = evaluation_of(run["arguments"]);
  std::optional<Conclusion> one;
  for (const auto& [data, pipeline, tensor, limits] :
       {Setting{1, 1, 1, {}}, Setting{1, 1, 1, {3, 100}}, Setting{3, 1, 1, {}}, Setting{2, 2, 2, {3, 100}}})
    if (Grid* grid = grid_with(data, pipeline, tensor)) {
      const Conclusion c = conclusion<double>(*asked, *grid, limits);
      if (!one) one = c;
      const std::string where =
          fmt::format("{} data {} pipeline {} tensor {} batch {}", run["arguments"].dump(), data, pipeline, tensor, limits.passages);
      expect_same(c.results, one->results, 1e-11, where);
      expect_same(c.records, one->records, 1e-11, where);
    }
  sync_ranks();
}

INSTANTIATE_TEST_SUITE_P(golden, evaluation, ::testing::Range(0, int(runs().size())));

}  // namespace
}  // namespace gyr::testing::evaluation_suite
