// SPDX-License-Identifier: BSD-3-Clause
// The traffic of a training step on every communicator equals the closed form of its layout. The plan of a step
// (traffic, bytes by category, FLOPs) equals what the step then uses.
#include "modules/objectives/seq2seq.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/encoder_decoder.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"
#include "src/planner/layouts/stage_contents.hpp"

namespace gyr::testing::traffic_suite {
namespace {

constexpr Index batch = 2;

struct Shape {
  int data, pipeline, tensor;
  bool sequence = false;
};
constexpr Shape shapes[] = {{8, 1, 1}, {2, 2, 2}, {1, 1, 8},       {1, 4, 2},       {1, 8, 1},
                            {4, 1, 2}, {1, 2, 4}, {1, 1, 8, true}, {2, 2, 2, true}, {1, 2, 4, true}};

Layout layout_of(const Shape& s, Index bucket_bytes = one_bucket) {
  std::vector<Span> stages;
  for (int i = 0; i < s.pipeline; ++i) stages.push_back({8 * i / s.pipeline, 8 * (i + 1) / s.pipeline});
  Layout layout = grid_layout(s.data, s.pipeline, s.tensor, stages);
  layout.sequence = s.sequence;
  layout.bucket_bytes = bucket_bytes;
  return layout;
}

EngineConfig config_of(const ModelConfig& model, Index seq_length) {
  EngineConfig c;
  c.model = model;
  c.micro_batch_size = batch, c.seq_length = seq_length;
  c.micros = 3;
  return c;
}

// Traffic of a step on this rank, which must equal its plan.
template <class T>
Ledger expect_planned_step(const EngineConfig& config, const Layout& layout, const std::string& where) {
  Grid& grid = *grid_of(layout);
  const RankPlan plan = plan_rank(in<T>(config), layout, grid.position());
  Rig<T> rig(config, grid);
  grid.visit([](Communicator& c) { c.clear_traffic(); });
  rig.engine.device().clear_work();
  const auto source = [&](int micro) { return micro_batch(Index(micro) * batch, batch, config.seq_length, config.model.vocab_size); };
  rig.engine.train(source, config.micros, 1, 1e-3);

  const Ledger counted = ledger_of(traffic_of(grid));
  const double flops = rig.engine.device().flops();
  EXPECT_EQ(ledger_of(plan.traffic), counted) << where;
  rig.engine.evaluate(source, 1);
  for (int i = 0; i < memory_categories; ++i)
    EXPECT_EQ(rig.engine.measured().bytes(Memory(i)), plan.capacity.bytes(Memory(i))) << where << " " << name_of(Memory(i));
  EXPECT_EQ(flops, plan.flops) << where;
  EXPECT_GT(plan.flops, 0) << where;
  return counted;
}

template <class T>
void expect_closed_form(const EngineConfig& config, const Layout& layout, const std::string& where) {
  EXPECT_EQ(expect_planned_step<T>(config, layout, where), closed_form<T>(config, layout, grid_of(layout)->position())) << where;
}

template <class T>
void every_layout(const std::string& name, Index bucket_bytes) {
  for (const Shape& s : shapes) {
    const Layout layout = layout_of(s, bucket_bytes);
    expect_closed_form<T>(config_of(widened(named(name)), 5), layout,
                          fmt::format("{} data {} pipeline {} tensor {}", name, s.data, s.pipeline, s.tensor));
  }
  sync_ranks();
}

class traffic : public ::testing::TestWithParam<std::string> {};

TEST_P(traffic, traffic_equals_closed_form_and_plan_in_double) { every_layout<double>(GetParam(), part_by_part); }
TEST_P(traffic, traffic_equals_closed_form_and_plan_in_float) { every_layout<float>(GetParam(), one_bucket); }
TEST_P(traffic, traffic_equals_closed_form_and_plan_in_bf16) { every_layout<bf16>(GetParam(), part_by_part); }

INSTANTIATE_TEST_SUITE_P(T, traffic, ::testing::Values("T2", "T3", "T5", "T6", "T7"), [](const auto& info) { return info.param; });

// Gradients in bf16 take half the bytes, at every ZeRO level.
TEST(traffic, bf16_gradient_traffic_equals_closed_form) {
  for (const Shard level : {Shard::none, Shard::optimizer, Shard::gradients, Shard::weights})
    for (const Shape& s : {Shape{8, 1, 1}, Shape{2, 2, 2}, Shape{4, 1, 2}}) {
      // weights that several tensor-parallel ranks hold are reduced in parts, which have another closed form
      if (level != Shard::none && s.tensor > 1) continue;
      Layout layout = layout_of(s, part_by_part);
      layout.shard = level;
      EngineConfig config = config_of(widened(named("T5")), 5);
      config.reduce_dtype = DType::bf16;
      expect_closed_form<float>(config, layout, fmt::format("sharded {}, data {} pipeline {}", name_of(level), s.data, s.pipeline));
    }
  sync_ranks();
}

// Logits are computed block by block. For a long micro-batch, the LM head reduces each block separately, and the last
// block is shorter.
TEST(traffic, traffic_of_logit_blocks_equals_closed_form) {
  const Layout layout = layout_of({2, 1, 4});
  expect_closed_form<float>(config_of(widened(named("T5")), 150), layout, "300 rows");
  sync_ranks();
}

// Gradients of frozen weights are not sent. With the layers and the embedding frozen, the data-parallel group reduces
// only those of the head. A step with scattered frozen weights must match its plan too.
TEST(traffic, frozen_weights_cause_no_gradient_traffic) {
  for (const Shape& s : shapes) {
    const Layout layout = layout_of(s, part_by_part);
    const std::string where = fmt::format("data {} pipeline {} tensor {}", s.data, s.pipeline, s.tensor);
    EngineConfig config = config_of(widened(named("T2")), 5);
    config.optimizer.frozen = {"*.k_proj.weight", "*.up_proj.weight", "*.mamba.*", "model.layers.7.*"};
    expect_planned_step<double>(config, layout, where);
    config.optimizer.frozen = {"model.layers.*", "model.embed_tokens.weight"};
    const Ledger counted = expect_planned_step<double>(config, layout, where);
    const bool last = grid_of(layout)->coordinate(Axis::pipeline) == s.pipeline - 1;
    FlatRun head;
    head.next(config.model.hidden_size), head.next((config.model.vocab_size + s.tensor - 1) / s.tensor * config.model.hidden_size), head.align();
    const auto sums = counted.find({"data", Operation::all_reduce});
    EXPECT_EQ(sums == counted.end() ? Traffic{} : sums->second, (last && s.data > 1 ? Traffic{1, head.extent * 8} : Traffic{})) << where;
  }
  sync_ranks();
}

// Messages between pipeline stages: every tensor that travels is planned and counted, for each stage and in both
// directions. The memo layers pass a tensor on from the first to the last of them.
void expect_planned_messages(const ModelConfig& model, const std::vector<Span>& stages, int tensor, bool sequence) {
  Layout layout = grid_layout(8 / int(stages.size()) / tensor, int(stages.size()), tensor, stages);
  layout.sequence = sequence;
  RunConfig run;
  run.model = model, run.train.precision = "fp64", run.train.seq_length = 8;
  LayoutChoice choice;
  choice.pipeline = int(stages.size()), choice.tensor = tensor, choice.sequence = sequence, choice.micro_batch_size = batch;
  EngineConfig config = config_of(model, run.lengths().text);
  config.source_length = run.lengths().source;
  Grid& grid = *grid_of(layout);
  Rig<double> rig(config, grid);
  grid.visit([](Communicator& c) { c.clear_traffic(); });
  rig.engine.train(
      [&](int micro) {
        MicroBatch m = micro_batch(Index(micro) * batch, batch, config.seq_length, model.vocab_size);
        if (config.source_length > 0) m.source = {config.source_length, micro_batch(7, batch, config.source_length, model.vocab_size).tokens};
        return m;
      },
      config.micros, 1, 1e-3);
  Traffic planned;
  const int stage = grid.coordinate(Axis::pipeline);
  const auto add = [&](const Traffic& message) { planned.calls += config.micros * message.calls, planned.bytes += config.micros * message.bytes; };
  if (stage + 1 < choice.pipeline) add(message_of(run, choice, stages[std::size_t(stage)].last));
  if (stage > 0) add(message_of(run, choice, stages[std::size_t(stage)].first));
  const Ledger counted = ledger_of(traffic_of(grid));
  EXPECT_EQ(counted.at({"pipeline", Operation::send}), planned) << model.pattern << " stage " << stage;
  EXPECT_EQ(ledger_of(plan_rank(in<double>(config), layout, grid.position()).traffic), counted) << model.pattern << " stage " << stage;
}

// The encoder is a stack with a width and heads of its own.
ModelConfig with_narrow_encoder(ModelConfig m) {
  m.attention.relative_bias.buckets = 0, m.attention.rotary_fraction = 1;
  m.encoder = StackConfig{.hidden_size = 12, .norm = NormType::layer, .rms_norm_eps = 1e-3, .attention = m.attention, .mlp = m.mlp};
  m.encoder->attention.num_heads = 4, m.encoder->attention.num_kv_heads = 2, m.encoder->attention.head_dim = 6;
  return m;
}

TEST(traffic, every_pipeline_message_equals_its_plan) {
  ModelConfig encodes = encoder_and_decoder("*-*->*X-*X-", 8), keeps = named("T2").model;
  encodes.attention.num_heads = 8, encodes.attention.num_kv_heads = 4, encodes.objective = seq2seq({12, 1});
  keeps.pattern = "*K-KM-K*";
  const ModelConfig narrow = with_narrow_encoder(encodes);
  for (const bool sequence : {false, true}) {
    expect_planned_messages(encodes, {{0, 6}, {6, 11}}, 4, sequence);
    expect_planned_messages(encodes, {{0, 3}, {3, 6}, {6, 8}, {8, 11}}, 2, sequence);
    expect_planned_messages(narrow, {{0, 3}, {3, 6}, {6, 8}, {8, 11}}, 2, sequence);
    expect_planned_messages(keeps, {{0, 2}, {2, 3}, {3, 7}, {7, 8}}, 2, sequence);
  }
  sync_ranks();
}

// The gradients of tensors that travel are those of one rank, however the layers are cut into stages. Every second encoder
// input is shorter, and takes a smaller capacity.
void expect_gradients_of_one_rank(const ModelConfig& model, Index source_length) {
  EngineConfig config = config_of(model, 6);
  config.source_length = source_length;
  if (source_length > 0) config.smaller_sources = {source_length / 2};
  const auto batch_of = [&](Index first) {
    MicroBatch m = micro_batch(first, batch, config.seq_length, model.vocab_size);
    const Index rows = first / batch % 2 == 0 ? source_length : source_length / 2 - 1;
    if (source_length > 0) m.source = {rows, micro_batch(first + 100, batch, rows, model.vocab_size).tokens};
    return m;
  };
  const auto outcome = [&](Grid& grid) {
    config.micros = 4 / grid.layout().size(Axis::data);
    Rig<double> rig(config, grid);
    set_weights(rig.engine);
    StepOutcome o{rig.engine.gradients([&](int i) { return batch_of(first_sample(batch, i, grid)); }, config.micros, 1), {}};
    o.gradients = gathered_gradients(rig.engine);
    return o;
  };
  const StepOutcome one = outcome(single_rank_grid(8));
  for (const Layout& layout : {grid_layout(1, 8, 1, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}}),
                               with_sequence(grid_layout(1, 4, 2, {{0, 2}, {2, 3}, {3, 7}, {7, 8}})), grid_layout(4, 2, 1, {{0, 4}, {4, 8}})}) {
    const Errors errors = errors_of(one, outcome(*grid_of(layout)));
    EXPECT_TRUE(within_limits(errors, DType::f64)) << layout.text() << ": loss " << errors.loss << ", gradient " << errors.worst_gradient();
  }
}

TEST(traffic, tensors_passed_on_keep_gradients_of_one_rank) {
  ModelConfig keeps = named("T2").model, encodes = encoder_and_decoder("*-*>*X-X", 8);
  keeps.pattern = "*K-KM-K*";
  encodes.attention.num_heads = 8, encodes.attention.num_kv_heads = 4, encodes.objective = seq2seq({12, 1});
  expect_gradients_of_one_rank(keeps, 0);
  expect_gradients_of_one_rank(with_narrow_encoder(encodes), 12);
  sync_ranks();
}

// 64 ranks are planned one after the other; none of them exists.
TEST(traffic, planned_traffic_of_larger_grids_equals_closed_form) {
  ModelConfig model = named("T3").model;
  model.pattern = std::string(16, 'P');
  model.hidden_size = 96, model.vocab_size = 1000;
  model.attention = {.num_heads = 16, .num_kv_heads = 4, .head_dim = 8, .rope_theta = 1e4, .bias = true};
  model.mamba.num_heads = 16, model.mamba.num_groups = 2, model.mamba.in_bias = model.mamba.out_bias = true;
  model.mlp = {.intermediate_size = 64, .bias = true};
  std::vector<Span> stages;
  for (int s = 0; s < 4; ++s) stages.push_back({4 * s, 4 * (s + 1)});
  Layout layout = grid_layout(2, 4, 8, stages);
  layout.bucket_bytes = part_by_part;
  for (const bool tied : {false, true}) {
    model.tie_word_embeddings = tied;
    const EngineConfig config = config_of(model, 400);
    for (int position = 0; position < layout.ranks(); ++position)
      EXPECT_EQ(ledger_of(plan_rank(in<bf16>(config), layout, position).traffic), closed_form<bf16>(config, layout, position)) << position;
  }
}

}  // namespace
}  // namespace gyr::testing::traffic_suite
