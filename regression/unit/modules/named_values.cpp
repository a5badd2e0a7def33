// SPDX-License-Identifier: BSD-3-Clause
// Named values: a micro-batch holds those of all its sequences, and the scalar head reads them by name. The objective is
// defined in the tests only (weighted_values.hpp).
#include "modules/pass/named_values.hpp"

#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/weighted_values.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::named_values_suite {
namespace {

const ValueName<Token> number_of_row{"numbers"}, pair_of_row{"pairs of rows"};
const ValueName<double> score_of_pair{"scores of pairs"};

// Padding fills short sequences and absent fields; indices count the values of the sequences before.
TEST(named_values, sequences_append_with_padding_and_shifted_indices) {
  const std::vector<NamedField> fields{ValueField<Token>{number_of_row, 7}, ValueField<Token>{pair_of_row, -1, 0, 2},
                                       ValueField<double>{score_of_pair, 0.5, 2}};
  NamedHostValues all, first, second;
  first[number_of_row] = {1, -2, 3}, first[pair_of_row] = {0, -1, 1}, first[score_of_pair] = {-1, 4};
  second[pair_of_row] = {1, 0}, second[score_of_pair] = {9};
  append_values(fields, first, 3, all), append_values(fields, second, 3, all), append_values(fields, {}, 3, all);
  EXPECT_EQ(all.at(number_of_row), (std::vector<Token>{1, -2, 3, 7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(all.at(pair_of_row), (std::vector<Token>{0, -1, 1, 3, 2, -1, -1, -1, -1}));
  EXPECT_EQ(all.at(score_of_pair), (std::vector<double>{-1, 4, 9, 0.5, 0.5, 0.5}));
  EXPECT_THROW(append_values(fields, first, 2, all), std::exception);
  EXPECT_THROW(all.at(ValueName<Token>{"absent"}), std::exception);
}

// Random samples of the test's objective, in a model without a norm before the head.
struct Drawn {
  EngineConfig config;
  MicroBatch batch;

  Drawn(std::mt19937& random, NormPlacement placement, const std::string& pattern) {
    ModelConfig& m = config.model;
    m = named("T2").model;
    m.pattern = pattern, m.norm_placement = placement, m.tie_word_embeddings = false;
    m.objective = std::make_shared<WeightedValues>();
    config.micro_batch_size = 1 + Index(random() % 3), config.seq_length = 5 + Index(random() % 8);
    const auto sample = [&](Index) {
      Sample s;
      for (Index t = 0; t <= config.seq_length; ++t)
        s.tokens.push_back(Token(random() % std::uint64_t(m.vocab_size))), s.learned.push_back(t < 2 || random() % 3 > 0);
      return s;
    };
    batch = micro_batch_of(sample, m, Index(random() % 100), config.micro_batch_size, config.seq_length);
  }
};

// Keeps the output of the last layer.
struct LastOutput : Hook {
  std::string name;
  std::vector<double> values;
  void micro_batch(int) override {}
  void observe(Observed what, const std::string& of, const AnyMatrix& x, Index, Index, std::span<const Held>) override {
    if (what != Observed::activation || of != name) return;
    const auto* const data = static_cast<const double*>(x.data);
    for (Index r = 0; r < x.rows; ++r) values.insert(values.end(), data + r * x.stride, data + r * x.stride + x.columns);
  }
  void gradients_are_reduced() override {}
};

TEST(named_values, scalar_head_matches_plain_loops) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 10; ++draw) {
    const Drawn d(random, NormPlacement::after, "*-");
    Rig<double> rig(d.config, single_rank_grid(2));
    set_weights(rig.engine);
    LastOutput last;
    last.name = "model.layers.1.output";
    rig.engine.set_hook(&last);
    const double loss = rig.engine.gradients([&](int) { return d.batch; }, 1, 1).loss;
    rig.engine.set_hook(nullptr);
    const Parameter* w = nullptr;
    for (const auto& p : rig.engine.stage().parameters().all())
      if (p->weight.name == "score.weight") w = &*p;
    ASSERT_NE(w, nullptr);
    const Index width = d.config.model.hidden_size, length = d.batch.seq_length;
    ASSERT_EQ(Index(last.values.size()), d.batch.batch * length * width);
    std::vector<double> dw(width, 0);
    double sum = 0, labels = 0;
    for (Index r = 0; r < d.batch.batch * length; ++r) {
      if (d.batch.labels[r] == ignored_label) continue;
      double y = 0;
      for (Index i = 0; i < width; ++i) y += w->vector<double>()(i) * last.values[r * width + i];
      const Index sequence = d.batch.first_sample + r / length;
      const double weight = 0.5 + double((7 * (r % length) + sequence) % 5), error = y - (double(sequence % 3) - 1.5);
      sum += weight * error * error / 2, labels += 1;
      for (Index i = 0; i < width; ++i) dw[i] += WeightedValues::constant * weight * error * last.values[r * width + i];
    }
    EXPECT_NEAR(loss, sum / labels, 1e-12 * std::max(1.0, sum));
    for (Index i = 0; i < width; ++i) EXPECT_NEAR(w->vector_gradient<double>()(i), dw[i], 1e-11 * std::max(1.0, std::abs(dw[i])));
    EXPECT_NEAR(rig.engine.evaluate([&](int) { return d.batch; }, 1).first, sum, 1e-12 * std::max(1.0, sum));
  }
}

TEST(named_values, scalar_head_gradients_match_finite_differences) {
  std::mt19937 random(seed_of_run());
  for (const char* pattern : {"P", "*-", "LE"})
    for (const NormPlacement placement : {NormPlacement::before, NormPlacement::after, NormPlacement::both, NormPlacement::output}) {
      SCOPED_TRACE(fmt::format("{} {}", pattern, int(placement)));
      const Drawn d(random, placement, pattern);
      Rig<double> rig(d.config, single_rank_grid(d.config.model.layers()));
      set_weights(rig.engine);
      const auto source = [&](int) { return d.batch; };
      rig.engine.gradients(source, 1, 1);
      expect_differences(rig.engine, [&] { return WeightedValues::constant * rig.engine.evaluate(source, 1).first; });
    }
}

}  // namespace
}  // namespace gyr::testing::named_values_suite
