// SPDX-License-Identifier: BSD-3-Clause
// Dropout of the encoder of neighbours (layers R): gradients are differences under a fixed mask, evaluations draw none, and
// the mask of a neighbour depends on its sample, chunk and number, not on micro-batches or on the ranks that share a text.
#include <algorithm>
#include <random>
#include <set>

#include "regression/support/differences.hpp"
#include "regression/support/retrieval.hpp"
#include "regression/support/seed.hpp"
#include "src/engine/model/neighbours_here.hpp"
#include "src/verify/equality.hpp"

namespace gyr::testing::retrieval_dropout_suite {
namespace {

EngineConfig dropping(const std::string& pattern, const std::string& encoder, Index batch, double dropout = 0.3) {
  ModelConfig m = retrieval_model(pattern, 3, 2, encoder);
  m.retrieval.dropout = dropout;
  EngineConfig c = retrieval_config(m, batch, 4);
  c.seed = 3;
  return c;
}

StepOutcome step(const EngineConfig& config, const MicroBatches& source, std::int64_t number = 1) {
  Rig<double> rig(config, single_rank_grid(config.model.layers()));
  StepOutcome outcome{rig.engine.gradients(source, config.micros, number), {}};
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

// Sequence b of a micro-batch, with its neighbours.
MicroBatch sequence_of(const MicroBatch& all, Index b, const RetrievalConfig& c) {
  MicroBatch one{1, all.seq_length, {}, {}, {}, all.first_sample + b};
  const auto part = [&](const auto& from, Index first, Index count, auto& to) {
    to.insert(to.end(), from.begin() + first, from.begin() + first + count);
  };
  part(all.tokens, b * all.seq_length, all.seq_length, one.tokens), part(all.labels, b * all.seq_length, all.seq_length, one.labels);
  const Index chunks = all.seq_length / c.chunk, r = c.neighbour_length();
  one.source.length = all.source.length;
  for (Index n = 0; n < c.neighbours; ++n) {
    const Index first = (n * all.batch + b) * chunks;
    part(all.source.lengths, first, chunks, one.source.lengths), part(all.source.tokens, first * r, chunks * r, one.source.tokens);
  }
  return one;
}

TEST(retrieval_dropout, gradients_equal_differences_under_fixed_mask) {
  std::mt19937 random(seed_of_run());
  for (const char* encoder : {"X", "*X-*-"}) {
    const EngineConfig config = dropping("*R-R", encoder, 2);
    Rig<double> rig(config, single_rank_grid(4)), moved(config, single_rank_grid(4));
    const MicroBatch batch = retrieval_batch(config, random());
    const auto source = [&](int) { return batch; };
    rig.engine.gradients(source, 1, 8);
    expect_differences(rig.engine, [&] {  // the loss of a second engine, so that the gradients of this one are kept
      const auto& from = rig.engine.stage().parameters().all();
      const auto& to = moved.engine.stage().parameters().all();
      for (std::size_t i = 0; i < from.size(); ++i) std::copy_n(from[i]->vector<double>().data(), from[i]->size(), to[i]->vector<double>().data());
      return moved.engine.gradients(source, 1, 8).loss;
    });
  }
}

TEST(retrieval_dropout, changes_training_not_evaluation) {
  const std::uint64_t seed = seed_of_run();
  for (const char* encoder : {"X", "*X-", "X-"}) {
    const auto losses = [&](double dropout) {
      const EngineConfig config = dropping("*R-", encoder, 2, dropout);
      Rig<double> rig(config, single_rank_grid(3));
      const auto source = [&](int) { return retrieval_batch(config, seed, true); };
      const double measured = rig.engine.evaluate(source, 1).first;
      return std::array{measured, rig.engine.gradients(source, 1, 1).loss, rig.engine.gradients(source, 1, 2).loss};
    };
    const auto with = losses(0.3), without = losses(0);
    EXPECT_EQ(with[0], without[0]) << encoder;
    EXPECT_GT(std::abs(with[1] - without[1]), 1e-9) << encoder;
    EXPECT_GT(std::abs(with[2] - with[1]), 1e-9) << encoder << ": another step draws another mask";
    EXPECT_EQ(without[2], without[1]) << encoder;
  }
}

TEST(retrieval_dropout, mask_of_neighbour_is_independent_of_batch) {
  EngineConfig joint = dropping("*R-R", "*X-*-", 3), separate = dropping("*R-R", "*X-*-", 1);
  separate.micros = 3;
  const MicroBatch all = retrieval_batch(joint, seed_of_run());
  const StepOutcome a = step(joint, [&](int) { return all; }), b = step(separate, [&](int i) { return sequence_of(all, i, joint.model.retrieval); });
  const Errors errors = errors_of(a, b);
  EXPECT_TRUE(within_limits(errors, DType::f64)) << "loss " << errors.loss << ", gradient " << errors.worst_gradient();
}

TEST(retrieval_dropout, recomputation_uses_the_same_mask) {
  const std::uint64_t seed = seed_of_run();
  EngineConfig config = dropping("*R-R", "*X-*-", 2);
  const auto source = [&](int) { return retrieval_batch(config, seed); };
  const StepOutcome kept = step(config, source);
  config.recompute.all = RecomputeCost::sum;
  const StepOutcome recomputed = step(config, source);
  EXPECT_EQ(recomputed.result.loss, kept.result.loss);
  EXPECT_EQ(recomputed.gradients, kept.gradients);
}

// All neighbours of consecutive samples have consecutive numbers, whichever rank and micro-batch holds them.
TEST(retrieval_dropout, numbers_of_neighbours_depend_on_sample_only) {
  std::mt19937 random(seed_of_run());
  const auto among = [&](Index least, Index most) { return std::uniform_int_distribution<Index>(least, most)(random); };
  for (int i = 0; i < 50; ++i) {
    const RetrievalConfig c{among(1, 4), among(1, 3), "X", 0.1};
    const Index ranks = among(1, 4), batch = among(1, 3), first = among(0, 1000), of_block = among(1, 3);
    SequenceLayout s;
    s.order = among(0, 1) ? SequenceOrder::zigzag : SequenceOrder::contiguous;
    s.ranks = ranks, s.batch = batch, s.seq_length = s.blocks() * of_block * c.chunk, s.full_tokens = ranks > 1 ? ranks * s.seq_length : 0;
    const Index chunks = s.full_length() / c.chunk, count = batch * chunks * c.neighbours;
    std::set<Index> numbers;
    for (s.rank = 0; s.rank < ranks; ++s.rank) {
      const SequenceLayout neighbours = layout_of_neighbours(s, c);
      const Index here = neighbours.batch / c.neighbours / batch;  // chunks of a text
      for (Index n = 0; n < neighbours.batch; ++n) {
        const Index number = neighbours.numbers.at(first, n), chunk = s.place(n % here * c.chunk) / c.chunk, b = n / here % batch;
        EXPECT_EQ(number, ((first + b) * chunks + chunk) * c.neighbours + n / here / batch);
        numbers.insert(number);
      }
    }
    EXPECT_EQ(Index(numbers.size()), count);
    EXPECT_EQ(*numbers.begin(), first * chunks * c.neighbours);
    EXPECT_EQ(*numbers.rbegin(), first * chunks * c.neighbours + count - 1);
  }
}

}  // namespace
}  // namespace gyr::testing::retrieval_dropout_suite
