// SPDX-License-Identifier: BSD-3-Clause
// Sentence-order prediction on random texts: positions of tokens after swapping halves, labels, and gradients, which
// must match finite differences of the sum of both losses.
#include "modules/objectives/sentence_order.hpp"
#include "modules/layers/embedding.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "modules/objectives/masking.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/engine/step/engine.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::sentence_order_suite {
namespace {

// Texts one after the other, with padding after the last one. Each token is its own index.
struct Drawn {
  std::vector<Token> tokens;
  std::vector<std::uint8_t> learned, begins;
  std::vector<std::int32_t> positions;
  std::vector<Span> texts;
  Index number = 0;

  Index length() const { return Index(tokens.size()) - 1; }
  SampleView view() const { return {tokens, learned, begins, number, Index(tokens.size()) + 1, positions}; }
};

Drawn drawn(std::mt19937& random, bool separate, bool words) {
  const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
  Drawn d;
  d.number = from(0, 1000000);
  for (Index i = 0, texts = separate ? from(1, 4) : 1; i < texts; ++i) {
    const Index first = Index(d.positions.size()), length = from(1, 30);
    d.texts.push_back({first, first + length});
    for (Index t = 0; t < length; ++t) d.positions.push_back(std::int32_t(t)), d.learned.push_back(t + 1 == length || from(0, 9) > 0);
  }
  for (Index i = 0, padding = from(1, 6); i < padding; ++i) d.positions.push_back(std::int32_t(i)), d.learned.push_back(0);
  for (Index t = 0; t < Index(d.positions.size()); ++t) {
    d.tokens.push_back(Token(t));
    if (words) d.begins.push_back(from(0, 2) == 0);
  }
  if (!separate) d.positions.clear();
  return d;
}

// Checks the two halves of a text in `h`, swapped or not. The second half begins at the first token of type 1.
void expect_halves(const Drawn& d, const Span& text, const OrderedHalves& h) {
  const Index first = text.first + 1, last = text.last - 1, inner = last - first;
  Index second = first;
  while (second < last && h.types[second] == 0) ++second;
  const bool swaps = h.order[text.first] == swapped;
  const Index second_length = last - second, split_at = swaps ? first + second_length : second;
  EXPECT_GE(std::min(split_at - first, last - split_at), std::max<Index>(1, inner / 4)) << "a half is too short; inner tokens: " << inner;
  EXPECT_TRUE(d.begins.empty() || (d.begins[split_at] && h.begins[second])) << "the split is inside a word";
  for (Index t = text.first; t < text.last; ++t) {
    const bool inside = t >= first && t < last;
    const Index was = !swaps || !inside ? t : t < second ? t + split_at - first : t - second + first;
    EXPECT_EQ(h.tokens[t], d.tokens[was]) << t;
    EXPECT_EQ(h.learned[t], d.learned[was]) << t;
    EXPECT_TRUE(d.begins.empty() || t == second || h.begins[t] == d.begins[was]) << t;
    EXPECT_EQ(h.types[t], t >= second) << t;
    EXPECT_TRUE(t == text.first || h.order[t] == ignored_label) << t;
  }
}

void expect_untouched(const Drawn& d, const Span& tokens, const OrderedHalves& h) {
  for (Index t = tokens.first; t < tokens.last; ++t) EXPECT_TRUE(h.tokens[t] == d.tokens[t] && h.types[t] == 0 && h.order[t] == ignored_label) << t;
}

bool can_be_split(const Drawn& d, const Span& text) {
  const Index first = text.first + 1, last = text.last - 1, quarter = std::max<Index>(1, (last - first) / 4);
  for (Index t = first + quarter; t + (last - first) / 4 < last; ++t)
    if (d.begins.empty() || d.begins[t]) return true;
  return false;
}

TEST(sentence_order, halves_are_swapped_between_first_and_last_token) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 1000; ++trial) {
    SCOPED_TRACE(fmt::format("trial {}", trial));
    const Drawn d = drawn(random, trial % 2 == 0, trial % 3 == 0);
    const OrderedHalves h = order_halves(5, d.view());
    for (const Span& text : d.texts) {
      EXPECT_EQ(h.order[text.first] != ignored_label, can_be_split(d, text)) << text.first << " to " << text.last;
      if (h.order[text.first] != ignored_label) expect_halves(d, text, h);
      else expect_untouched(d, text, h);
    }
    expect_untouched(d, {d.texts.back().last, d.length()}, h);
  }
}

// The bounds are five standard deviations.
TEST(sentence_order, half_the_texts_are_swapped_at_uniform_splits) {
  constexpr Index samples = 20000, inner = 40;
  std::vector<Token> tokens(inner + 3, 1);
  const std::vector<std::uint8_t> learned(inner + 3, 1);
  Index swaps = 0;
  std::vector<double> split_counts(inner, 0);
  for (Index number = 0; number < samples; ++number) {
    const OrderedHalves h = order_halves(9, {tokens, learned, {}, number, 2});
    const Index ones = std::count(h.types.begin(), h.types.end(), 1) - 1;
    swaps += h.order[0] == swapped;
    ++split_counts[std::size_t(h.order[0] == swapped ? ones : inner - ones)];
  }
  EXPECT_NEAR(double(swaps), 0.5 * samples, 5 * std::sqrt(0.25 * samples));
  for (Index split_at = 0; split_at < inner; ++split_at) {
    const double fraction = split_at >= inner / 4 && split_at < inner - inner / 4 ? 2.0 / inner : 0;
    EXPECT_NEAR(split_counts[split_at], fraction * samples, 5 * std::sqrt(fraction * samples)) << split_at;
  }
}

TEST(sentence_order, order_depends_only_on_seed_and_sample_number) {
  const SampleSource source = [](Index number) {
    std::mt19937 generator{std::uint32_t(number)};
    Sample s;
    for (Index t = 0; t <= 32; ++t) s.tokens.push_back(Token(10 + generator() % 20));
    s.learned.assign(33, 1);
    return s;
  };
  ModelConfig model;
  model.vocab_size = 32, model.type_vocab_size = 2, model.objective = masked_tokens({.mask_token = 4, .sentence_order = true});
  const MicroBatch all = micro_batch_of(source, model, 8, 16, 32);
  MicroBatch parts;
  for (Index first = 8; first < 24; first += 4) {
    const MicroBatch part = micro_batch_of(source, model, first, 4, 32);
    parts.tokens.insert(parts.tokens.end(), part.tokens.begin(), part.tokens.end());
    for (const auto& name : {token_types, order_labels})
      parts.values[name].insert(parts.values[name].end(), part.values.at(name).begin(), part.values.at(name).end());
  }
  EXPECT_EQ(parts.tokens, all.tokens);
  EXPECT_EQ(parts.values, all.values);
  const std::vector<Token>& order = all.values.at(order_labels);
  EXPECT_GT(std::ranges::count(all.values.at(token_types), 1), 0);
  EXPECT_EQ(std::ranges::count(order, ignored_label), 16 * 31);
  EXPECT_GT(std::ranges::count(order, swapped), 0);
  EXPECT_GT(std::ranges::count(order, in_order), 0);
  model.objective = masked_tokens({.mask_token = 4, .seed = 77, .sentence_order = true});
  EXPECT_NE(micro_batch_of(source, model, 8, 16, 32).values.at(order_labels), order);
}

EngineConfig encoder(NormPlacement placement, Index types) {
  EngineConfig config;
  ModelConfig& m = config.model;
  m = named("T5").model;
  m.pattern = "*-*-", m.vocab_size = 23, m.hidden_size = 12, m.attention.causal = false, m.tie_word_embeddings = true;
  m.norm_placement = placement, m.type_vocab_size = types;
  m.objective = masked_tokens({.fraction = 1, .sentence_order = true});
  config.micro_batch_size = 2, config.seq_length = 11, config.precision = DType::f64;
  return config;
}

MicroBatch with_halves(MicroBatch m) {
  std::vector<Token>&types = m.values[token_types], &order = m.values[order_labels];
  types.assign(m.tokens.size(), 0), order.assign(m.tokens.size(), ignored_label);
  for (Index r = 0; r < Index(m.tokens.size()); ++r) {
    const bool begins = m.positions.empty() ? r % m.seq_length == 0 : m.positions[r] == 0;
    types[r] = r % 5 > 2;
    if (begins) order[r] = Token(r % 3 == 0);
    if (r % 3 != 1) m.labels[r] = ignored_label;
  }
  return m;
}

double both_losses(Engine& engine, const MicroBatch& batch) {
  const StepResult r = engine.gradients([&](int) { return batch; }, 1, 1);
  return r.loss + r.ahead_losses.at(0).value();
}

TEST(sentence_order, gradients_match_finite_differences_of_both_losses) {
  for (const NormPlacement placement : {NormPlacement::before, NormPlacement::after, NormPlacement::both})
    for (const Index types : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} {}", int(placement), types));
      const EngineConfig config = encoder(placement, types);
      Rig<double> rig(config, single_rank_grid(config.model.layers()));
      const MicroBatch batch = with_halves(packed(micro_batch(0, 2, 11, 23), {4, 11}));
      both_losses(rig.engine, batch);
      const auto kept = gathered_gradients(rig.engine);
      EXPECT_TRUE(kept.contains("sentence_order.weight") && kept.contains("pooler.dense.weight"));
      expect_differences(rig.engine, kept, [&] { return both_losses(rig.engine, batch); });
    }
}

// A zero head gives both orders the probability 1/2.
TEST(sentence_order, zero_head_has_a_loss_of_ln_2) {
  const EngineConfig config = encoder(NormPlacement::after, 2);
  Rig<double> rig(config, single_rank_grid(config.model.layers()));
  for (const auto& p : rig.engine.stage().parameters().all())
    if (p->weight.name.starts_with("sentence_order.")) std::fill_n(p->vector<double>().data(), p->size(), 0.0);
  const MicroBatch batch = with_halves(micro_batch(0, 2, 11, 23));
  EXPECT_NEAR(rig.engine.gradients([&](int) { return batch; }, 1, 1).ahead_losses.at(0).value(), std::log(2.0), 1e-15);
}

TEST(sentence_order, sentence_order_refuses_causal_attention) {
  EngineConfig config = encoder(NormPlacement::before, 2);
  config.model.objective->check_model(config.model);
  config.model.attention.causal = true;
  try {
    config.model.objective->check_model(config.model);
    ADD_FAILURE() << "a causal model is accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find("train.mlm.sentence_order"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gyr::testing::sentence_order_suite
