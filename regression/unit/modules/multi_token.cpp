// SPDX-License-Identifier: BSD-3-Clause
// Multi-token prediction (MTP): inputs and labels of each depth are shifted within their document, gradients are
// differences of the sum of all losses, packed documents match separate ones, and validation uses only the main model.
#include "modules/objectives/multi_token.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "modules/cost/flops.hpp"
#include "modules/objectives/future_tokens.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr::testing::multi_token_suite {
namespace {

constexpr Index seq_length = 11;

// The model of a test case with layers of these symbols, followed by MTP modules.
EngineConfig config_of(const char* name, const std::string& pattern, const MultiToken& m, Index batch = 2) {
  EngineConfig config;
  config.model = named(name).model;
  config.model.pattern = pattern, config.model.objective = multi_token(m);
  config.model.vocab_size = 23, config.model.hidden_size = 12;
  config.model.moe.experts = 4, config.model.moe.intermediate_size = 6;
  config.model.moe.routing.top_k = 2;
  config.micro_batch_size = batch, config.seq_length = seq_length, config.precision = DType::f64;
  return config;
}

MicroBatch batch_of(const EngineConfig& config, Index first = 0) {
  return micro_batch(first, config.micro_batch_size, config.seq_length, config.model.vocab_size);
}

StepResult step_on(Engine& engine, const MicroBatch& batch) {
  return engine.gradients([&](int) { return with_future_tokens(batch, engine.model().objective->depths()); }, 1, 1);
}

double total_loss(Engine& engine, const MicroBatch& batch) {
  const StepResult r = step_on(engine, batch);
  double sum = r.loss;
  for (std::size_t k = 0; k < r.ahead_losses.size(); ++k) sum += engine.model().objective->losses().at(k + 1).weight * r.ahead_losses[k].value_or(0);
  return sum;
}

TEST(multi_token, inputs_and_labels_shift_within_the_same_document) {
  std::mt19937 random(seed_of_run());
  const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
  for (int draw = 0; draw < 300; ++draw) {
    const Index batch = from(1, 3), length = from(1, 12), distance = from(1, 5);
    std::vector<Token> tokens, labels;
    std::vector<std::int32_t> positions, document;
    for (Index r = 0, number = 0; r < batch * length; ++r) {
      const bool begins = r % length == 0 || from(0, 3) == 0;
      positions.push_back(begins ? 0 : positions.back() + 1);
      document.push_back(std::int32_t(number += begins));
      tokens.push_back(Token(from(1, 99))), labels.push_back(from(0, 4) ? Token(from(1, 99)) : ignored_label);
    }
    for (const bool separate : {false, true}) {
      const MtpTargets ahead = future_tokens(distance, length, tokens, labels, separate ? positions : std::vector<std::int32_t>());
      for (Index r = 0; r < batch * length; ++r) {
        const Index there = r + distance;
        const bool same = there / length == r / length && (!separate || document[there] == document[r]);
        EXPECT_EQ(ahead.tokens[r], same ? tokens[there] : 0) << r;
        EXPECT_EQ(ahead.labels[r], same ? labels[there] : ignored_label) << r;
      }
    }
  }
}

struct Kind {
  const char* name;
  std::string trunk;
  MultiToken ahead;
  LossTerms terms = {};
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"T1", "P", {1, "P", 0.7}}, {"T5", "*-", {2, "*-", 1.5}}, {"T2", "LE", {3, "LE", 0.3}}, {"T3", "M", {2, "-", 2}, {0.1, 0.01}}};
  return all;
}

EngineConfig config_of(const Kind& kind, Index batch = 2) {
  EngineConfig config = config_of(kind.name, kind.trunk, kind.ahead, batch);
  config.model.loss_terms = kind.terms;
  return config;
}

TEST(multi_token, gradients_match_differences_of_the_total_loss) {
  for (const Kind& kind : kinds())
    for (const NormPlacement placement : {NormPlacement::before, NormPlacement::after, NormPlacement::both, NormPlacement::output}) {
      SCOPED_TRACE(fmt::format("{} {} {}", kind.name, kind.trunk, int(placement)));
      EngineConfig config = config_of(kind);
      config.model.norm_placement = placement;
      Rig<double> rig(config, single_rank_grid(config.model.layers()));
      MicroBatch batch = packed(batch_of(config), {4, seq_length});
      batch.labels[1] = ignored_label;
      total_loss(rig.engine, batch);
      const auto kept = gathered_gradients(rig.engine);
      expect_differences(rig.engine, kept, [&] { return total_loss(rig.engine, batch); });
    }
}

// The separate documents are one micro-batch each, with their own label counts.
TEST(multi_token, packed_documents_match_separate_documents) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const EngineConfig config = config_of(kind, 1);
    Rig<double> joint(config, single_rank_grid(config.model.layers()));
    const MicroBatch all = packed(batch_of(config), {5, 1, 2, seq_length});
    const StepResult full = step_on(joint.engine, all);
    std::vector<double> sums(full.ahead_losses.size(), 0.0), counts = sums;
    for (const MicroBatch& document : split_documents(all)) {
      EngineConfig one = config;
      one.seq_length = document.seq_length;
      if (std::all_of(document.labels.begin(), document.labels.end(), [](Token label) { return label == ignored_label; })) continue;
      Rig<double> rig(one, single_rank_grid(config.model.layers()));
      const StepResult part = step_on(rig.engine, document);
      for (std::size_t k = 0; k < sums.size(); ++k) {
        const double labels = std::max<double>(0, double(document.seq_length) - 1 - double(k + 1));
        EXPECT_EQ(part.ahead_losses[k].has_value(), labels > 0);
        sums[k] += labels * part.ahead_losses[k].value_or(0), counts[k] += labels;
      }
    }
    for (std::size_t k = 0; k < sums.size(); ++k) {
      ASSERT_EQ(full.ahead_losses[k].has_value(), counts[k] > 0) << k;
      if (counts[k] > 0) {
        EXPECT_NEAR(*full.ahead_losses[k], sums[k] / counts[k], 1e-12) << k;
      }
    }
  }
}

// If no document is long enough for labels at depth 2, its modules have zero gradients, and all other gradients are the
// same as without them.
TEST(multi_token, mtp_depth_without_labels_adds_no_gradient) {
  const MultiToken one{1, "*-", 0.5}, two{2, "*-", 1.0};
  const auto gradients = [](const MultiToken& m) {
    EngineConfig config = config_of("T1", "*-", m);
    config.seq_length = 3;
    Rig<double> rig(config, single_rank_grid(2));
    const StepResult r = step_on(rig.engine, batch_of(config));
    return std::pair(r, gathered_gradients(rig.engine));
  };
  const auto [short_result, shallow] = gradients(one);
  const auto [result, deep] = gradients(two);
  ASSERT_EQ(result.ahead_losses.size(), 2u);
  EXPECT_EQ(result.ahead_losses[0], short_result.ahead_losses[0]);
  EXPECT_FALSE(result.ahead_losses[1].has_value());
  for (const auto& [name, gradient] : deep) {
    const bool second = name.starts_with("mtp.1.");
    for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(gradient[i], second ? 0 : shallow.at(name)[i], 1e-15) << name << " " << i;
  }
}

TEST(multi_token, validation_ignores_the_mtp_modules) {
  for (const Kind& kind : kinds()) {
    EngineConfig config = config_of(kind);
    const MicroBatch batch = batch_of(config);
    const auto measured = [&](const EngineConfig& c) {
      Rig<double> rig(c, single_rank_grid(c.model.layers()));
      return rig.engine.evaluate([&](int) { return batch; }, 1);
    };
    const auto with = measured(config);
    config.model.objective = config.model.objective->without_training();
    EXPECT_EQ(config.model.objective, next_token());
    EXPECT_EQ(measured(config), with) << kind.name;
  }
}

// Compared with a model that has the layers of the MTP modules in its trunk. Each depth adds three norms, a joining
// matrix (d, 2d) and the logits.
TEST(multi_token, parameters_and_flops_match_the_closed_form) {
  for (const Kind& kind : kinds()) {
    const ModelConfig with = config_of(kind).model;
    ModelConfig layers = with;
    layers.pattern = all_layers(with), layers.objective = next_token();
    const Index d = with.hidden_size, depths = kind.ahead.depths, norm = with.norm == NormType::layer ? 2 * d : d;
    EXPECT_EQ(parameter_count(with), parameter_count(layers) + depths * (3 * norm + 2 * d * d)) << kind.name;
    const double more = double(depths) * (2.0 * double(d * with.vocab_size) + 4.0 * double(d * d));
    const TokenFlops a = forward_flops(with, seq_length), b = forward_flops(layers, seq_length);
    for (const auto& [ahead, plain] : {std::pair{a.minimal, b.minimal}, {a.executed, b.executed}, {a.megatron, b.megatron}})
      EXPECT_NEAR(ahead, plain + more, 1e-9 * ahead) << kind.name;
    EXPECT_NEAR(training_flops(with, seq_length, {}), 3 * a.minimal, 1e-9 * a.minimal) << kind.name;
    const StageCosts c = stage_costs(with, seq_length);
    EXPECT_EQ(Index(c.layers.size()), with.layers());
    EXPECT_NEAR(c.head + std::accumulate(c.layers.begin(), c.layers.end(), 0.0), a.executed, 1e-9 * a.executed) << kind.name;
  }
}

Error refusal(const std::string& text) {
  return error_of([&] {
    Deck deck = Deck::parse(text, "run.yaml");
    read_run_config(deck);
    deck.finish();
  });
}

TEST(multi_token, deck_configures_multi_token_prediction) {
  Deck deck = Deck::parse("model: {pattern: \"*-*E\"}\ntrain: {objective: mtp, mtp: {depths: 2, weight: 0.1}, z_loss: 0.01}", "run.yaml");
  const RunConfig run = read_run_config(deck);
  deck.finish();
  const MultiToken* const m = multi_token_of(*run.model.objective);
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->depths, 2);
  EXPECT_EQ(m->pattern, "*E") << "the default is the last block of the model";
  EXPECT_TRUE(m->usual);
  Deck other_deck = Deck::parse("model: {pattern: \"*-*E\"}\ntrain: {objective: mtp, mtp: {pattern: \"*-\"}}", "run.yaml");
  EXPECT_EQ(multi_token_of(*read_run_config(other_deck).model.objective)->pattern, "*-");
  EXPECT_EQ(m->weight, 0.1);
  EXPECT_EQ(run.model.loss_terms.z, 0.01);
  EXPECT_EQ(all_layers(run.model), "*-*E*E*E");
  for (const auto& [pattern, part] : {std::pair{"X", "train.mtp.pattern: 'X'"}, {"Q", "there is no layer type 'Q'"}})
    EXPECT_NE(std::string(refusal(fmt::format("train: {{objective: mtp, mtp: {{pattern: \"{}\"}}}}", pattern)).what()).find(part), std::string::npos)
        << pattern;
  EXPECT_EQ(refusal("train: {objective: mtp, mtp: {depths: 0}}").code, Exit::config);
  EXPECT_NE(std::string(refusal("model: {pattern: \"*-\", attention: {relative_bias: {buckets: 8}}}\ntrain: {objective: mtp}").what())
                .find("relative_bias"),
            std::string::npos);
}

TEST(multi_token, last_block_begins_at_last_token_mixing_layer) {
  for (const auto& [pattern, block] : {std::pair{"PPP", "P"}, {"L-LELE", "LE"}, {"M-*-", "*-"}, {"--", "--"}, {"*->*X-", "*-"}, {"MM-E", "M-E"}})
    EXPECT_EQ(last_block(pattern), block) << pattern;
}

}  // namespace
}  // namespace gyr::testing::multi_token_suite
