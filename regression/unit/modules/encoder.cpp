// SPDX-License-Identifier: BSD-3-Clause
// Encoder models: gradients equal central differences, and a token affects all tokens of its document but none of
// another one. They cannot generate text.
#include "modules/objectives/masking.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/generate/generator.hpp"

namespace gyr::testing::encoder_suite {
namespace {

ModelConfig encoder_of(const std::string& pattern) {
  ModelConfig m = named("T2").model;
  m.pattern = pattern;
  m.attention.causal = false, m.attention.bias = true, m.mlp.bias = true;
  m.norm_placement = NormPlacement::after, m.norm = NormType::layer;
  m.type_vocab_size = 2, m.positions = 24, m.tie_word_embeddings = true;
  m.window.size = 3;
  m.objective = masked_tokens({.fraction = 0.7});
  return m;
}

MicroBatch batch_of(const ModelConfig& m, const Lengths& documents = {}) {
  MicroBatch batch = micro_batch(0, 2, 14, m.vocab_size);
  if (!documents.empty()) batch = packed(batch, documents);
  for (std::size_t r = 0; r < batch.labels.size(); ++r)
    if (r % 3 > 0) batch.labels[r] = ignored_label;
  return batch;
}

EngineConfig config_of(const ModelConfig& m) {
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = 2, c.seq_length = 14;
  return c;
}

TEST(encoder, gradients_equal_finite_differences) {
  for (const auto& [placement, called] : {std::pair{NormPlacement::after, "after"}, {NormPlacement::before, "before"}, {NormPlacement::both, "both"}})
    for (const LayerType& type : layer_types()) {
      if (of_encoder_and_decoder(type)) continue;
      ModelConfig m = encoder_of(std::string(2, type.symbol));
      m.norm_placement = placement;
      SCOPED_TRACE(fmt::format("{}, norms {}", m.pattern, called));
      Rig<double> rig(config_of(m), single_rank_grid(2));
      set_weights(rig.engine);
      expect_differences_of(rig.engine, batch_of(m, {5, 6, 14}));
    }
}

// The first norm is after the embedding instead of in the first layer, as in ModernBERT, with each type of norm.
TEST(encoder, gradients_equal_finite_differences_with_embedding_norm) {
  for (const char* pattern : {"W-*-", "-*", "P*", "M-"})
    for (const NormType norm : {NormType::rms, NormType::layer, NormType::layer_no_bias}) {
      ModelConfig m = encoder_of(pattern);
      m.norm_placement = NormPlacement::before, m.embed_norm = true, m.norm = norm;
      m.objective = masked_tokens({.fraction = 0.7, .head_bias = false});
      SCOPED_TRACE(fmt::format("{} norm {}", pattern, int(norm)));
      Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
      set_weights(rig.engine);
      expect_differences_of(rig.engine, batch_of(m, {5, 6, 14}));
    }
}

// Training computes logits of labelled rows only, evaluation of all rows. Both give the same loss, and the configured
// share of masked tokens changes no gradient.
TEST(encoder, skipping_unlabelled_rows_changes_no_result) {
  std::map<double, std::map<std::string, std::vector<double>>> gradients;
  for (const double fraction : {1.0, 0.7, 0.65}) {
    ModelConfig m = encoder_of("*-W-");
    m.objective = masked_tokens({.fraction = fraction});
    Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
    set_weights(rig.engine);
    const MicroBatch batch = batch_of(m, {5, 6, 14});
    const auto source = [&](int) { return batch; };
    const auto [sum, tokens] = rig.engine.evaluate(source, 1);
    EXPECT_NEAR(rig.engine.gradients(source, 1, 1).loss, sum / double(tokens), 1e-14) << fraction;
    gradients[fraction] = gathered_gradients(rig.engine);
  }
  for (const auto& [fraction, all] : gradients)
    for (const auto& [name, gradient] : all)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        EXPECT_NEAR(gradient[i], gradients.at(1.0).at(name)[i], 1e-14) << fraction << " " << name << " " << i;
}

// Compares the losses of all rows before and after one token is changed.
TEST(encoder, token_affects_only_its_own_document) {
  ModelConfig m = encoder_of("*-*-");
  m.objective = masked_tokens({.fraction = 1});
  Rig<double> rig(config_of(m), single_rank_grid(4));
  set_weights(rig.engine);
  MicroBatch batch = packed(micro_batch(0, 2, 14, m.vocab_size), {5, 6, 14});  // documents of the first sequence: rows 0-4, 5-10 and 11-13
  const auto losses = [&](const MicroBatch& b) { return rig.engine.scores([&](int) { return b; }, 1).at(0).rows; };
  const auto before = losses(batch);
  batch.tokens[8] = (batch.tokens[8] + 1) % Token(m.vocab_size);
  const auto after = losses(batch);
  for (Index r = 0; r < 28; ++r) {
    if (batch.labels[r] == ignored_label) continue;
    const bool of_its_text = r >= 5 && r <= 10;
    EXPECT_EQ(before[r].loss != after[r].loss, of_its_text) << "row " << r;
  }
}

// A token affects the nearest tokens of its document on both sides, and through two layers those twice as far.
TEST(encoder, window_shows_nearest_tokens_on_both_sides) {
  for (const auto& [pattern, layers] : {std::pair{"W-", 1}, {"W-W-", 2}}) {
    ModelConfig m = encoder_of(pattern);
    m.objective = masked_tokens({.fraction = 1});
    Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
    set_weights(rig.engine);
    MicroBatch batch = packed(micro_batch(0, 2, 14, m.vocab_size), {11, 3, 14});
    batch.labels.assign(batch.labels.size(), 1);
    const auto losses = [&](const MicroBatch& b) { return rig.engine.scores([&](int) { return b; }, 1).at(0).rows; };
    const auto before = losses(batch);
    batch.tokens[7] = (batch.tokens[7] + 1) % Token(m.vocab_size);
    const auto after = losses(batch);
    for (Index r = 0; r < 28; ++r)
      EXPECT_EQ(before[r].loss != after[r].loss, std::abs(r - 7) <= layers * (m.window.size - 1) && r < 11) << pattern << " row " << r;
  }
}

TEST(encoder, generator_refuses_encoder_model) {
  ModelConfig m = encoder_of("*-");
  const Error error = error_of([&] { Generator(m, DType::f32, single_rank_grid(2), {1, 4, 2}); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("model.attention.causal = false"), std::string::npos) << error.what();
}

TEST(encoder, embed_norm_requires_pre_norm_placement) {
  for (const char* placement : {"after", "both"}) {
    const Error error = error_of([&] {
      Deck deck = Deck::parse(fmt::format("model: {{pattern: '*-', embed_norm: true, norm_placement: {}}}\n", placement), "run.yaml");
      read_run_config(deck);
    });
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find("model.embed_norm"), std::string::npos) << error.what();
  }
}

TEST(encoder, balanced_context_parallelism_requires_causal_mask) {
  for (const char* model : {"model: {pattern: '*-', attention: {causal: false}}\ntrain: {seq_length: 64}\n",
                            "model: {pattern: '*->*X-'}\ntrain: {seq_length: 64, objective: span_corruption}\n"}) {
    Deck deck = Deck::parse(std::string(model) + "parallel: {context: 2, context_mode: balanced}\n", "run.yaml");
    const RunConfig run = read_run_config(deck);
    const Error error = error_of([&] { layout_of(run, 2); });
    EXPECT_EQ(error.code, Exit::config) << model;
    EXPECT_NE(std::string(error.what()).find("parallel.context_mode = balanced"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gyr::testing::encoder_suite
