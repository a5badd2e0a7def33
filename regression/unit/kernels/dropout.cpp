// SPDX-License-Identifier: BSD-3-Clause
// Dropout masks are a function of seed, step, place in the model, sample, token and channel. They are checked against
// plain loops and in training steps of full models.
#include "kernels/ops/dropout.hpp"

#include <cmath>
#include <random>
#include <set>

#include "modules/objectives/classes.hpp"
#include "modules/pass/sequence_layout.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::dropout_suite {
namespace {

double kept(const Dropout& d, const DrawnAt& now, Index sequence, Index token, Index channel) {
  return d.words(d.of(d.at(now), sequence), 0, token, channel / 4).at[channel % 4] < d.limit ? 0 : d.kept;
}

// Dropout of random rows on one context-parallel rank, in zigzag or contiguous order. The output is separate from x,
// then in place.
template <class T>
void expect_dropped(std::mt19937& random) {
  const auto among = [&](Index least, Index most) { return std::uniform_int_distribution<Index>(least, most)(random); };
  Workbench bench;
  SequenceLayout s;
  s.order = among(0, 1) ? SequenceOrder::zigzag : SequenceOrder::contiguous;
  s.ranks = among(1, 4), s.rank = among(0, s.ranks - 1);
  s.batch = among(1, 3), s.seq_length = 2 * among(1, 9), s.full_tokens = s.ranks > 1 ? s.ranks * s.seq_length : 0;
  const Index first = among(0, s.rows() - 1), rows = s.rows() - first, columns = among(1, 300);
  const auto now = bench.arena.tensor<DrawnAt>(1);
  now(0) = {among(1, 1000), Index(random()) << 5};
  const Dropout d = dropout_at(random(), "a place", std::uniform_real_distribution<>(0, 0.9)(random), now.data());
  const auto x = bench.normal<T>(rows, columns), y = bench.normal<T>(rows, columns);
  auto expected = values_of(x);
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < columns; ++c) {
      double& e = expected[r * columns + c];
      e = double(T(Acc<T>(e) * Acc<T>(kept(d, now(0), (first + r) / s.seq_length, s.place((first + r) % s.seq_length), c))));
    }
  drop<T>(bench.dev, d, s.places(), first, x, y);
  EXPECT_EQ(values_of(y), expected);
  drop<T>(bench.dev, d, s.places(), first, x, x);
  EXPECT_EQ(values_of(x), expected);
}

TEST(dropout, keeps_same_elements_as_reference_loops) {
  std::mt19937 random(seed_of_run());
  for (int i = 0; i < 60; ++i) expect_dropped<double>(random), expect_dropped<float>(random), expect_dropped<bf16>(random);
}

// The fraction of kept elements is 1 - p within five standard deviations, and the mean factor is one.
TEST(dropout, kept_fraction_matches_probability) {
  for (const double p : {0.01, 0.1, 0.5, 0.9}) {
    const Dropout d = dropout_at(seed_of_run(), "here", p, nullptr);
    const DrawnAt now{5, 17};
    constexpr Index rows = 500, columns = 800;
    double sum = 0, number = 0;
    for (Index t = 0; t < rows; ++t)
      for (Index c = 0; c < columns; ++c) sum += kept(d, now, t % 3, t, c), number += kept(d, now, t % 3, t, c) > 0;
    const double n = rows * columns, deviation = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(number / n, 1 - p, 5 * deviation) << p;
    EXPECT_NEAR(sum / n, 1, 5 * deviation / (1 - p)) << p;
  }
  EXPECT_FALSE(dropout_at(1, "here", 0, nullptr).drops());
}

// Changing any input of the random words changes the words. Heads, and samples beyond 2^32, do not share counters.
TEST(dropout, mask_depends_on_seed_step_and_position) {
  const auto words = [](std::uint64_t seed, std::int64_t step, const char* place, Index sample, Index head, Index token, Index n) {
    Dropout d = dropout_at(seed, place, 0.5, nullptr);
    d.first_head = head;
    const PhiloxWords w = d.words(d.at({step, sample}), 0, token, n);
    return std::vector<std::uint32_t>(w.at, w.at + 4);
  };
  std::set<std::vector<std::uint32_t>> all{words(1, 1, "a", 0, 0, 0, 0)};
  const Index far = Index(1) << 32;
  all.insert({words(2, 1, "a", 0, 0, 0, 0), words(1 + (std::uint64_t(1) << 32), 1, "a", 0, 0, 0, 0), words(1, 2, "a", 0, 0, 0, 0),
              words(1, 1 + far, "a", 0, 0, 0, 0), words(1, 1, "b", 0, 0, 0, 0), words(1, 1, "a", 1, 0, 0, 0), words(1, 1, "a", far, 0, 0, 0),
              words(1, 1, "a", 0, 1, 0, 0), words(1, 1, "a", 0, Dropout::most_heads - 1, 0, 0), words(1, 1, "a", 0, 0, 1, 0),
              words(1, 1, "a", 0, 0, 0, 1)});
  EXPECT_EQ(all.size(), 12u);
  const Dropout d = dropout_at(1, "a", 0.5, nullptr);
  const PhiloxWords fourth = d.words(d.of(d.at({1, 40}), 3), 0, 2, 1), single = d.words(d.at({1, 43}), 0, 2, 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fourth.at[i], single.at[i]);
}

ModelConfig dropped_out(const ModelConfig& from, const std::string& pattern) {
  ModelConfig m = from;
  m.pattern = pattern;
  m.dropout = {0.2, 0.3, 0.4, 0};
  m.latent = {2, 4, 4, 6, 5, 6, 100, {}, 1e-4};
  return m;
}

EngineConfig trained(const ModelConfig& m, Index batch, Index seq_length, int micros = 1) {
  EngineConfig c;
  c.model = m, c.micro_batch_size = batch, c.seq_length = seq_length, c.micros = micros;
  c.seed = 3;
  return c;
}

template <class T>
StepOutcome taken(Rig<T>& rig, const MicroBatches& source, int micros, std::int64_t step) {
  StepOutcome outcome{rig.engine.gradients(source, micros, step), {}};
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

bool same_bits(const StepOutcome& a, const StepOutcome& b) { return a.result.loss == b.result.loss && a.gradients == b.gradients; }

// Checks the gradients of a training step against central differences of its loss under the same dropout mask.
void expect_slopes(const ModelConfig& m, const MicroBatch& batch) {
  SCOPED_TRACE(m.pattern);
  Rig<double> rig(trained(m, batch.batch, batch.seq_length), single_rank_grid(m.layers())),
      moved(trained(m, batch.batch, batch.seq_length), single_rank_grid(m.layers()));
  const auto source = [&](int) { return batch; };
  rig.engine.gradients(source, 1, 8);
  expect_differences(rig.engine, [&] {  // the loss of a second engine, so that the gradients of this one are kept
    const auto& from = rig.engine.stage().parameters().all();
    const auto& to = moved.engine.stage().parameters().all();
    for (std::size_t i = 0; i < from.size(); ++i) Kokkos::deep_copy(to[i]->vector<double>(), from[i]->vector<double>());
    return moved.engine.gradients(source, 1, 8).loss;
  });
}

TEST(dropout, step_gradient_equals_finite_difference_under_fixed_mask) {
  for (const NormPlacement placement : {NormPlacement::before, NormPlacement::after, NormPlacement::both})
    for (const char* pattern : {"P*", "B-L"}) {
      ModelConfig m = dropped_out(named("T2").model, pattern);
      m.norm_placement = placement;
      expect_slopes(m, micro_batch(40, 2, 9, m.vocab_size));
    }
}

TEST(dropout, classifier_gradient_equals_finite_difference_under_fixed_mask) {
  for (const bool tagged : {false, true}) {
    ModelConfig m = dropped_out(named("T2").model, "*-");
    m.dropout.head = 0.4;
    m.tie_word_embeddings = false;
    m.objective = tagged ? tag(numbered_classes(3)) : classify(numbered_classes(3));
    MicroBatch batch = micro_batch(4, 2, 7, m.vocab_size);
    for (Token& label : batch.labels)
      if (label != ignored_label) label %= 3;
    expect_slopes(m, batch);
  }
}

// Each kind of dropout changes the loss of a training step, and none changes an evaluation.
TEST(dropout, applies_to_training_not_to_evaluation) {
  const Case& c = named("T2");
  const auto source = [&](int) { return micro_batch(0, c.batch, c.seq_length, c.model.vocab_size); };
  const auto run = [&](const DropoutConfig& dropout) {
    ModelConfig m = dropped_out(c.model, "P*");
    m.dropout = dropout;
    Rig<float> rig(trained(m, c.batch, c.seq_length), single_rank_grid(m.layers()));
    const double measured = rig.engine.evaluate(source, 1).first;
    return std::pair{measured, rig.engine.gradients(source, 1, 1).loss};
  };
  const auto none = run({});
  for (const DropoutConfig& d : {DropoutConfig{0.3, 0, 0, 0}, DropoutConfig{0, 0.3, 0, 0}, DropoutConfig{0, 0, 0.3, 0}}) {
    EXPECT_EQ(run(d).first, none.first);
    EXPECT_GT(std::abs(run(d).second - none.second), 1e-6);
  }
  EXPECT_EQ(run({0, 0, 0, 0.3}), none);  // head dropout has no effect on a head that predicts tokens
}

// A new run draws the same mask for the same step. Another step, seed or sample draws another mask.
TEST(dropout, same_step_draws_same_mask_in_any_run) {
  const ModelConfig m = dropped_out(named("T2").model, "PL");
  const auto source = [&](Index first) { return [&m, first](int i) { return micro_batch(first + i, 1, 9, m.vocab_size); }; };
  EngineConfig config = trained(m, 1, 9, 2);
  const auto fresh = [&](std::int64_t step, Index first, int micros = 2) {
    Rig<float> rig(config, single_rank_grid(m.layers()));
    return taken(rig, source(first), micros, step);
  };
  Rig<float> rig(config, single_rank_grid(m.layers()));
  for (const std::int64_t before : {1, 2}) rig.engine.gradients(source(before), 2, before);
  const StepOutcome third = taken(rig, source(6), 2, 3);
  EXPECT_TRUE(same_bits(third, fresh(3, 6)));
  EXPECT_NE(third.result.loss, fresh(4, 6).result.loss);
  config.seed = 4;
  EXPECT_NE(third.result.loss, fresh(3, 6).result.loss);
  const auto alike = [&](Index first) {  // the same tokens under another sample number
    MicroBatch batch = micro_batch(0, 1, 9, m.vocab_size);
    batch.first_sample = first;
    return rig.engine.gradients([&](int) { return batch; }, 1, 3).loss;
  };
  EXPECT_NE(alike(0), alike(1));
}

// The mask of a sample depends on its number, not on its place in a batch or among micro-batches.
TEST(dropout, mask_of_sample_is_independent_of_batch) {
  const ModelConfig m = dropped_out(named("T2").model, "P*L-");
  Rig<double> joint(trained(m, 4, 9), single_rank_grid(m.layers())), separate(trained(m, 1, 9, 4), single_rank_grid(m.layers()));
  const auto source = [&](Index batch) { return [&m, batch](int i) { return micro_batch(20 + i * batch, batch, 9, m.vocab_size); }; };
  EXPECT_TRUE(within_limits(errors_of(taken(joint, source(4), 1, 2), taken(separate, source(1), 4, 2)), DType::f64));
}

// Recomputed activations use the same dropout mask.
TEST(dropout, recomputation_uses_the_same_mask) {
  for (const char* pattern : {"P*L", "BWE"})
    for (const NormPlacement placement : {NormPlacement::before, NormPlacement::after, NormPlacement::both}) {
      ModelConfig m = dropped_out(named("T3").model, pattern);
      m.norm_placement = placement;
      const auto source = [&](int i) { return micro_batch(Index(i), 1, 9, m.vocab_size); };
      const auto run = [&](const char* policy) {
        EngineConfig config = trained(m, 1, 9, 2);
        config.recompute.all = recompute_of(policy);
        Rig<float> rig(config, single_rank_grid(m.layers()));
        return taken(rig, source, 2, 1);
      };
      const StepOutcome kept = run("none");
      for (const char* policy : {"selective", "attention_output", "full"}) EXPECT_TRUE(same_bits(run(policy), kept)) << pattern << " " << policy;
    }
}

}  // namespace
}  // namespace gyr::testing::dropout_suite
