// SPDX-License-Identifier: BSD-3-Clause
// A pretrained trunk with a new head: trunk weights are read exactly, and head weights are initialized as in a run from
// scratch, no matter which head was stored.
#include "src/pretrained/new_head.hpp"

#include <algorithm>

#include "modules/cost/flops.hpp"
#include "modules/objectives/classes.hpp"
#include "modules/objectives/seq2seq.hpp"
#include "modules/objectives/span_corruption.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/golden.hpp"
#include "regression/support/testing.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::new_head_suite {
namespace {

std::vector<double> values_of(const TensorReader& tensor) {
  std::vector<double> values(std::size_t(elements(tensor.shape)));
  if (tensor.dtype == DType::f64) {
    tensor.read(full_box(tensor.shape), values.data(), tensor.shape, full_box(tensor.shape));
    return values;
  }
  std::vector<float> stored(values.size());
  tensor.read(full_box(tensor.shape), stored.data(), tensor.shape, full_box(tensor.shape));
  std::copy(stored.begin(), stored.end(), values.begin());
  return values;
}

void expect_new_head(const Golden& stored, std::shared_ptr<const Objective> objective, bool tied) {
  constexpr std::uint64_t seed = 7;
  SCOPED_TRACE(stored.name + " " + objective->name());
  ModelConfig model = stored.model;
  model.objective = std::move(objective), model.tie_word_embeddings = tied;
  const auto source = open_trunk(stored.folder, model, seed), before = open_weights(stored.folder, stored.model);
  const std::vector<Weight> weights = declared_weights(model);
  check_weights(*source, weights);
  int drawn = 0;
  for (const Weight& w : weights) {
    std::vector<double> want(std::size_t(w.size()));
    if (w.name.starts_with("model.")) want = values_of(before->open(w.name, DType::f32));
    else {
      const Stream stream(seed, w.name);
      for (Index i = 0; i < w.size(); ++i) want[i] = draw(w.init, stream, i);
      ++drawn;
    }
    EXPECT_EQ(values_of(source->open(w.name, DType::f32)), want) << w.name;
  }
  EXPECT_GT(drawn, 0);
}

TEST(new_head, trunk_is_loaded_and_head_is_initialized) {
  for (const char* name : {"bert", "bert_texts", "bert_tokens"}) {
    expect_new_head(golden(name), classify(numbered_classes(3)), false);  // the number of classes of the stored head
    expect_new_head(golden(name), tag(numbered_classes(4)), false);
  }
  expect_new_head(golden("bert_texts"), golden("bert").model.objective, true);
  expect_new_head(golden("gpt2"), classify(numbered_classes(2), Pool::last), false);
  expect_new_head(golden("llama"), tag(numbered_classes(2)), false);
}

TEST(new_head, different_trunk_is_refused) {
  ModelConfig model = golden("bert").model;
  model.objective = tag(numbered_classes(4)), model.tie_word_embeddings = false;
  model.pattern = "*-";  // the stored trunk has more layers
  const Error error = error_of([&] { check_weights(*open_trunk(golden("bert").folder, model, 1), declared_weights(model)); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("bert.encoder.layer.1."), std::string::npos) << error.what();
}

// Objectives whose heads predict the same tokens from the same weights share a stored head. Every other pair is refused.
TEST(new_head, stored_head_is_kept_by_equal_objectives) {
  struct Kind {
    const char* folder;
    std::vector<std::shared_ptr<const Objective>> kept;
  };
  const Kind kinds[] = {
      {"t5", {span_corruption(), seq2seq({})}},   {"t5_gated", {span_corruption(), seq2seq({})}},
      {"llama", {next_token(), preference(0.1)}}, {"deepseek_v3_mtp", {next_token(), preference(0.1), golden("deepseek_v3_mtp").model.objective}},
      {"bert", {golden("bert").model.objective}}, {"bert_texts", {classify(numbered_classes(3))}},
      {"bert_tokens", {tag(numbered_classes(5))}}};
  for (const Kind& from : kinds)
    for (const Kind& other : kinds)
      for (const auto& objective : other.kept) {
        SCOPED_TRACE(fmt::format("{} with {}", from.folder, objective->name()));
        const auto named = [&](const auto& kept) { return std::string_view(kept->name()) == objective->name(); };
        const bool kept = std::any_of(from.kept.begin(), from.kept.end(), named);
        const Golden& stored = golden(from.folder);
        ModelConfig model = stored.model;
        model.objective = objective;
        if (!kept) {
          EXPECT_EQ(error_of([&] { open_initial(stored.folder, model, false, 1); }).code, Exit::config);
          continue;
        }
        check_initial(stored.folder, model, false);
        const auto source = open_initial(stored.folder, model, false, 1), before = open_weights(stored.folder, stored.model);
        for (const Weight& w : declared_weights(model))
          EXPECT_EQ(values_of(source->open(w.name, DType::f32)), values_of(before->open(w.name, DType::f32))) << w.name;
      }
}

TEST(new_head, mismatched_head_error_suggests_a_new_head) {
  ModelConfig model = golden("bert_texts").model;
  require_same_head(golden("bert_texts").folder, model);
  for (const auto& objective : {classify(numbered_classes(2)), tag(numbered_classes(3))}) {
    model.objective = objective;
    const Error error = error_of([&] { require_same_head(golden("bert_texts").folder, model); });
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find("train.init_head=new"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gyr::testing::new_head_suite
