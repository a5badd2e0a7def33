// SPDX-License-Identifier: BSD-3-Clause
// The program's basic law: every factorization of 2, 4 and 8 ranks into data x pipeline x tensor parallelism gives the
// loss and the gathered gradients of one rank. The models have eight layers and eight heads, so that every axis can use
// all ranks.
#include <algorithm>
#include <cmath>

#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::equality_suite {
namespace {

constexpr Index sequences = 8, seq_length = 11;

// Settings of a step other than the model.
struct Setting {
  Lengths documents = {};                // lengths of packed documents, rotated from sequence to sequence
  std::vector<std::string> frozen = {};  // name patterns of weights
  Schedule schedule = one_f_one_b;
  RecomputeConfig recompute = {};
};

EngineConfig config_of(const ModelConfig& model, const Layout& layout, const Setting& setting) {
  EngineConfig c;
  c.model = model;
  c.micro_batch_size = 1, c.seq_length = seq_length;
  c.micros = int(sequences / layout.size(Axis::data));
  c.optimizer.frozen = setting.frozen;
  c.schedule = setting.schedule;
  c.recompute = setting.recompute;
  return c;
}

template <class T>
StepOutcome step(const ModelConfig& model, Grid& grid, const Setting& setting = {}) {
  Rig<T> rig(config_of(model, grid.layout(), setting), grid);
  const int data = grid.layout().size(Axis::data), mine = grid.coordinate(Axis::data);
  const auto source = [&](int micro) {
    const Index first = Index(micro) * data + mine;
    MicroBatch batch = micro_batch(first, 1, seq_length, model.vocab_size);
    return setting.documents.empty() ? batch : packed(std::move(batch), setting.documents, first);
  };
  StepOutcome outcome{rig.engine.gradients(source, rig.engine.config().micros, 1), {}};
  outcome.gradients = gathered_gradients(rig.engine);
  const Capacity used = rig.engine.measured();
  for (int i = 0; i < memory_categories; ++i)  // counted by the dry run; the optimizer step takes no more
    EXPECT_LE(used.bytes(Memory(i)), rig.capacity.bytes(Memory(i))) << name_of(Memory(i));
  return outcome;
}

void expect_equal(const StepOutcome& one, const StepOutcome& many, DType dtype, const std::string& where) {
  const Errors errors = errors_of(one, many);
  EXPECT_EQ(many.result.tokens, one.result.tokens) << where;
  EXPECT_LE(errors.loss, limit_of(dtype)) << where;
  EXPECT_LE(errors.norm, limit_of(dtype)) << where;
  for (const auto& [name, error] : errors.gradients) EXPECT_LE(error, limit_of(dtype, name)) << where << " " << name;
}

template <class T>
void every_factorisation(const std::string& name, DType dtype, const Setting& setting = {}) {
  const ModelConfig model = widened(named(name));
  const StepOutcome one = step<T>(model, single_rank_grid(8), setting);
  for (const int ranks : {2, 4, 8})
    for (int tensor = 1; tensor <= ranks; tensor *= 2)
      for (int pipeline = 1; pipeline * tensor <= ranks; pipeline *= 2) {
        const int data = ranks / tensor / pipeline;
        const auto equal = [&](const Layout& layout) {
          if (Grid* grid = grid_of(layout)) expect_equal(one, step<T>(model, *grid, setting), dtype, name + " " + layout.text());
        };
        equal(layout_of(data, pipeline, tensor));
        if (tensor > 1 && sizeof(T) == 8) equal(with_sequence(layout_of(data, pipeline, tensor)));
      }
  sync_ranks();
}

class equality : public ::testing::TestWithParam<std::string> {};

// In double precision, sums in another order differ by rounding only. Single precision has its own limit.
TEST_P(equality, any_layout_equals_one_rank_in_double) { every_factorisation<double>(GetParam(), DType::f64); }
TEST_P(equality, any_layout_equals_one_rank_in_float) { every_factorisation<float>(GetParam(), DType::f32); }

INSTANTIATE_TEST_SUITE_P(T, equality, ::testing::Values("T1", "T2", "T3", "T4", "T5", "T6", "T7"), [](const auto& info) { return info.param; });

// Every rank has the positions of its micro-batch, so that middle pipeline stages separate packed documents too.
TEST(equality, packed_documents_equal_one_rank_on_any_layout) { every_factorisation<double>("T3", DType::f64, {{5, 1, 3, 2}}); }

// Some stages have no trainable weight, and several ranks hold the only key head.
TEST(equality, frozen_weights_equal_one_rank_on_any_layout) {
  every_factorisation<double>("T5", DType::f64, {{}, {"model.layers.0.*", "model.layers.1.*", "*.mamba.*", "*.k_proj.weight", "*.down_proj.*"}});
}

TEST(equality, permuted_ranks_equal_one_rank) {
  const ModelConfig model = widened(named("T2"));
  const StepOutcome one = step<double>(model, single_rank_grid(8));
  expect_equal(one, step<double>(model, *grid_of(layout_of(2, 2, 2, {5, 2, 7, 0, 3, 6, 1, 4}))), DType::f64, "permuted");
}

// Every factorization of eight ranks, each with another order of the axes.
TEST(equality, any_order_of_axes_equals_one_rank) {
  const ModelConfig model = widened(named("T2"));
  const StepOutcome one = step<double>(model, single_rank_grid(8));
  std::vector<Axis> order{Axis::data, Axis::pipeline, Axis::tensor};
  for (int tensor = 1; tensor <= 8; tensor *= 2)
    for (int pipeline = 1; pipeline * tensor <= 8; pipeline *= 2) {
      if (!std::next_permutation(order.begin(), order.end())) std::next_permutation(order.begin(), order.end());
      const Layout layout = layout_of(8 / tensor / pipeline, pipeline, tensor, {}, order);
      expect_equal(one, step<double>(model, *grid_of(layout)), DType::f64, layout.text());
    }
  sync_ranks();
}

TEST(equality, uneven_pipeline_stages_equal_one_rank) {
  const ModelConfig model = widened(named("T5"));
  const StepOutcome one = step<double>(model, single_rank_grid(8));
  expect_equal(one, step<double>(model, *grid_of(grid_layout(1, 4, 2, {{0, 1}, {1, 5}, {5, 6}, {6, 8}}))), DType::f64, "uneven");
}

// The engine runs any schedule, also with several chunks per rank, split backwards, packed documents and frozen
// weights.
TEST(equality, other_pipeline_schedules_equal_one_rank) {
  const ModelConfig model = widened(named("T3"));
  const Lengths documents{5, 1, 3, 2};
  const std::vector<std::string> frozen{"model.layers.0.*", "model.embed_tokens.weight"};
  const StepOutcome one = step<double>(model, single_rank_grid(8), {documents, frozen});
  const auto equal = [&](Schedule schedule, const Layout& layout, const char* name) {
    if (Grid* grid = grid_of(layout)) expect_equal(one, step<double>(model, *grid, {documents, frozen, schedule}), DType::f64, name);
  };
  equal(all_forward_all_backward, layout_of(2, 4, 1), "all forward, all backward");
  equal(zero_bubble, layout_of(1, 4, 2), "zero bubble");
  const auto chunks = [](int data, int pipeline, int tensor, std::vector<Span> stages) {
    return grid_layout(data, pipeline, tensor, std::move(stages));
  };
  equal(interleaved, chunks(2, 2, 2, {{0, 1}, {1, 4}, {4, 6}, {6, 8}}), "two ranks of two chunks");
  equal(interleaved, chunks(1, 2, 1, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}}), "two ranks of four chunks");
  equal(interleaved, chunks(2, 4, 1, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}}), "four ranks of two chunks");
  sync_ranks();
}

TEST(equality, same_layout_gives_the_same_bits) {
  const ModelConfig model = widened(named("T3"));
  Grid& grid = *grid_of(layout_of(2, 2, 2));
  const StepOutcome a = step<float>(model, grid), b = step<float>(model, grid);
  EXPECT_EQ(a.result.loss, b.result.loss);
  EXPECT_EQ(a.result.gradient_norm, b.result.gradient_norm);
  EXPECT_EQ(a.gradients, b.gradients);
}

// The recomputed layers contain tensor-parallel collectives, and each layout has two pipeline stages.
TEST(equality, recomputation_keeps_every_bit) {
  const ModelConfig model = widened(named("T3"));
  for (const Layout& layout : {layout_of(2, 2, 2), with_sequence(layout_of(1, 2, 4))}) {
    Grid& grid = *grid_of(layout);
    const StepOutcome kept = step<bf16>(model, grid, {{5, 1, 3, 2}});
    for (const char* policy : {"selective", "attention_output", "full"}) {
      const StepOutcome again = step<bf16>(model, grid, {{5, 1, 3, 2}, {}, one_f_one_b, {recompute_of(policy)}});
      EXPECT_EQ(kept.result.loss, again.result.loss) << layout.text() << " " << policy;
      EXPECT_TRUE(kept.gradients == again.gradients) << layout.text() << " " << policy;
    }
  }
}

}  // namespace
}  // namespace gyr::testing::equality_suite
