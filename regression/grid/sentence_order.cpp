// SPDX-License-Identifier: BSD-3-Clause
// Sentence-order prediction on grids of up to 8 ranks: both losses and every gradient equal those of one rank, with
// packed documents, token types and few labels, for all ways of sharding tokens.
#include <gtest/gtest.h>

#include "modules/layers/embedding.hpp"
#include "modules/objectives/masking.hpp"
#include "modules/objectives/sentence_order.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"
#include "src/train/validation.hpp"

namespace gyr::testing::sentence_order_suite {
namespace {

constexpr Index seq_length = 21;  // a length that is padded with context parallel
constexpr int micros_of_all = 8;

std::vector<Layout> layouts() {
  std::vector<Layout> all{layout_of(8, 1, 1),
                          layout_of(1, 1, 8),
                          layout_of(2, 4, 1),
                          layout_of(1, 2, 4),
                          with_sequence(layout_of(1, 2, 4)),
                          layout_with_context(1, 1, 8, 1),
                          layout_with_context(1, 2, 2, 2),
                          with_sequence(layout_with_context(2, 1, 2, 2)),
                          layout_with_context(1, 2, 3, 1, SequenceOrder::contiguous)};
  Layout heads = layout_with_context(2, 1, 2, 2);  // not balanced, because balanced attention is causal
  heads.context_mode = ContextMode::heads;
  all.push_back(heads);
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::weights}) {
    all.push_back(sharded(layout_of(4, 2, 1), shard, 1));
    all.push_back(with_sequence(sharded(layout_with_context(2, 1, 2, 2), shard, 1)));
  }
  return all;
}

EngineConfig config_of(NormPlacement placement, bool tied, int micros) {
  EngineConfig config;
  ModelConfig& m = config.model;
  m = named("T5").model;
  m.pattern = "*-*-*-*-", m.vocab_size = 29, m.norm_placement = placement, m.tie_word_embeddings = tied, m.type_vocab_size = 2;
  m.attention.num_heads = 8, m.attention.num_kv_heads = 4, m.attention.head_dim = 4, m.attention.causal = false;
  m.mlp.intermediate_size = 16;
  m.dropout.embedding = 0.2;
  m.objective = masked_tokens({.fraction = 0.5, .sentence_order = true});
  config.micro_batch_size = 1, config.seq_length = seq_length, config.micros = micros, config.seed = 3;
  return config;
}

MicroBatch batch(Index number, Index vocab_size) {
  MicroBatch m = packed(micro_batch(number, 1, seq_length, vocab_size), {5, 9, 2, seq_length}, number);
  std::vector<Token>&types = m.values[token_types], &order = m.values[order_labels];
  types.assign(seq_length, 0), order.assign(seq_length, ignored_label);
  for (Index r = 0; r < seq_length; ++r) {
    if ((r + number) % 3 != 0) m.labels[r] = ignored_label;
    if (m.positions[r] == 0) order[r] = Token((number + r) % 2);
    types[r] = Token((r + number) % 7 > 3);
  }
  return m;
}

StepOutcome step_on(Grid& grid, NormPlacement placement, bool tied) {
  const int data = grid.layout().size(Axis::data), micros = micros_of_all / data;
  Rig<double> rig(config_of(placement, tied, micros), grid);
  const auto source = [&](int micro) { return batch(Index(micro) * data + grid.coordinate(Axis::data), 29); };
  StepOutcome outcome{rig.engine.gradients(source, micros, 1), {}};
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

TEST(sentence_order, losses_and_gradients_equal_those_of_one_rank) {
  for (const NormPlacement placement : {NormPlacement::before, NormPlacement::after})
    for (const bool tied : {false, true}) {
      const StepOutcome one = step_on(single_rank_grid(8), placement, tied);
      ASSERT_EQ(one.result.ahead_losses.size(), 1u);
      ASSERT_GT(one.result.ahead_losses[0].value(), 0.1);
      for (const Layout& layout : layouts()) {
        Grid* const grid = grid_of(layout);
        if (!grid) continue;
        const StepOutcome many = step_on(*grid, placement, tied);
        const Errors errors = errors_of(one, many);
        EXPECT_TRUE(within_limits(errors, DType::f64)) << layout.text() << (tied ? " tied" : "") << " " << int(placement) << ": loss " << errors.loss
                                                       << ", norm " << errors.norm << ", gradient " << errors.worst_gradient();
      }
    }
  sync_ranks();
}

// Micro-batches of which some have no masked token and some no order label. The vocabulary is so small that some
// predictions are right.
constexpr Index few_tokens = 5;
MicroBatch validated_batch(Index number) {
  MicroBatch m = batch(number, few_tokens);
  if (number % 3 == 1) std::fill(m.labels.begin(), m.labels.end(), ignored_label);
  if (number % 4 == 2) std::ranges::fill(m.values[order_labels], ignored_label);
  return m;
}

EngineConfig config_of_validation(int micros) {
  EngineConfig config = config_of(NormPlacement::before, true, micros);
  config.model.vocab_size = few_tokens;
  return config;
}

// Expected validation, by plain loops over the observed logits and over the losses of the two order classes.
Validation by_hand() {
  Rig<double> rig(config_of_validation(1), single_rank_grid(8));
  double hits = 0, labels = 0, right = 0, scored = 0, loss = 0;
  for (Index number = 0; number < micros_of_all; ++number) {
    const MicroBatch m = validated_batch(number);
    std::vector<double> logits;
    rig.engine.stage().head().set_observer([&](const AnyTensor2& x) {
      const auto block = x.as<const double>();
      logits.insert(logits.end(), block.data(), block.data() + block.size());
    });
    const Scores scores = rig.engine.scores([&](int) { return m; }, 1);
    for (Index r = 0; r < seq_length; ++r) {
      if (const Token order = m.values.at(order_labels)[r]; order != ignored_label) ++scored, right += scores.at(0).order.at(r).loss < std::log(2.0);
      if (m.labels[r] == ignored_label) continue;
      const auto row = logits.begin() + r * few_tokens;
      ++labels, hits += std::max_element(row, row + few_tokens) - row == m.labels[r], loss += scores.at(0).rows.at(r).loss;
    }
  }
  return {loss / labels, {{"accuracy", hits / labels}, {"order accuracy", right / scored}}};
}

TEST(sentence_order, validation_matches_plain_loops_on_any_grid) {
  const Validation expected = by_hand();
  for (const auto& [name, value] : expected.figures) EXPECT_TRUE(value > 0.05 && value < 0.95) << name << " " << value;
  for (const Layout& layout : layouts()) {
    Grid* const grid = grid_of(layout);
    if (!grid) continue;
    const int data = layout.size(Axis::data), micros = micros_of_all / data;
    Rig<double> rig(config_of_validation(micros), *grid);
    Validator validator(rig.engine);
    for (const int half : {0, 1})  // two calls with half of the micro-batches each, if there are at least two
      if (micros > 1 || half == 0)
        validator.add([&](int i) { return validated_batch(Index(half * (micros / 2) + i) * data + grid->coordinate(Axis::data)); },
                      std::max(1, micros / 2));
    const Validation found = validator.result();
    EXPECT_NEAR(found.loss, expected.loss, 1e-11) << layout.text();
    EXPECT_EQ(found.figures, expected.figures) << layout.text();
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::sentence_order_suite
