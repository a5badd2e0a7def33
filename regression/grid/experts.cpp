// SPDX-License-Identifier: BSD-3-Clause
// Expert layers on grids of up to 8 ranks: every gradient equals that of one rank, with load-balancing terms as large
// as the loss. The router is random, or it sends all tokens to the same two experts.
#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::experts_suite {
namespace {

constexpr Index seq_length = 21;  // a length that is padded with context parallel
constexpr int micros_of_all = 8;

struct Shape {
  int data, pipeline, context, tensor;
  bool sequence;
  int expert = 1;
  Shard shard = Shard::none;
};
constexpr Shape shapes[] = {{8, 1, 1, 1, false},
                            {2, 1, 1, 4, false},
                            {2, 1, 1, 4, true},
                            {1, 1, 1, 8, true},
                            {2, 2, 2, 1, false},
                            {1, 1, 8, 1, false},
                            {2, 1, 2, 2, true},
                            {4, 2, 1, 1, false, 2},
                            {2, 1, 1, 4, true, 2, Shard::optimizer},
                            {8, 1, 1, 1, false, 2, Shard::weights},
                            {1, 1, 6, 1, false, 6},
                            {2, 1, 3, 1, false, 6, Shard::gradients},
                            {2, 1, 3, 1, false, 6, Shard::weights},
                            {1, 1, 6, 1, false, 6, Shard::weights},
                            {2, 1, 3, 1, false, 3, Shard::weights},
                            {2, 2, 2, 1, false, 2}};

Layout layout_of(const Shape& s) {
  std::vector<Span> stages;
  for (int i = 0; i < s.pipeline; ++i) stages.push_back({2 * i / s.pipeline, 2 * (i + 1) / s.pipeline});
  Layout layout = grid_layout(s.data, s.pipeline, s.tensor, stages, {}, {}, s.context);
  layout.sequence = s.sequence, layout.expert = s.expert, layout.shard = s.shard;
  return layout;
}

EngineConfig config_of(Routing::Score score, bool biased, int micros) {
  EngineConfig config;
  ModelConfig& m = config.model;
  m = named("T2").model;
  m.pattern = "EE";
  m.moe.experts = 6, m.moe.intermediate_size = 4, m.moe.shared_intermediate_size = 8, m.moe.bias = biased;
  m.moe.routing = {score, 2, 3, 2, true, 1.5};
  m.moe.aux_loss = 1, m.moe.z_loss = score == Routing::softmax ? 0.5 : 0;
  config.micro_batch_size = 1, config.seq_length = seq_length, config.micros = micros;
  return config;
}

NamedGradients gradients_on(Grid& grid, Routing::Score score, bool biased, Index latent) {
  const int data = grid.layout().size(Axis::data), micros = micros_of_all / data;
  EngineConfig config = config_of(score, biased, micros);
  config.model.moe.latent_size = latent;
  Rig<double> rig(config, grid);
  for (const auto& p : rig.engine.stage().parameters().all())
    if (p->weight.name.ends_with("correction_bias")) assign(rig.engine.device(), *p, [](Index e) { return e == 1 || e == 4 ? 100.0 : 0.0; });
  const auto source = [&](int micro) {
    return micro_batch(Index(micro) * data + grid.coordinate(Axis::data), 1, seq_length, rig.engine.model().vocab_size);
  };
  rig.engine.gradients(source, micros, 1);
  return gathered_gradients(rig.engine);
}

TEST(experts, expert_gradients_equal_those_of_one_rank) {
  for (const auto& [score, biased, latent] : {std::tuple{Routing::softmax, false, 0},
                                              {Routing::softmax, true, 0},
                                              {Routing::sigmoid, false, 0},
                                              {Routing::sigmoid, true, 0},
                                              {Routing::sigmoid, false, 5},
                                              {Routing::softmax, true, 40}}) {
    const NamedGradients expected = gradients_on(single_rank_grid(2), score, biased, latent);
    for (const Shape& s : shapes) {
      const Layout layout = layout_of(s);
      Grid* const grid = grid_of(layout);
      if (!grid) continue;
      expect_same_gradients(gradients_on(*grid, score, biased, latent), expected, 1e-12, fmt::format("{}, latent of {}", layout.text(), latent));
    }
  }
  sync_ranks();
}

// With a low capacity, many choices are dropped, by position or by router weight. Every grid must drop the same
// choices.
TEST(experts, dropped_choices_are_the_same_on_every_grid) {
  for (const DropPolicy policy : {DropPolicy::position, DropPolicy::probability}) {
    const auto step_on = [&](Grid& grid) {
      const int data = grid.layout().size(Axis::data), micros = micros_of_all / data;
      EngineConfig config = config_of(Routing::sigmoid, true, micros);
      config.model.moe.capacity_factor = 0.6, config.model.moe.drop_policy = policy;
      Rig<double> rig(config, grid);
      const auto source = [&](int micro) {
        return micro_batch(Index(micro) * data + grid.coordinate(Axis::data), 1, seq_length, rig.engine.model().vocab_size);
      };
      StepOutcome outcome{rig.engine.gradients(source, micros, 1), {}};
      outcome.gradients = gathered_gradients(rig.engine);
      return outcome;
    };
    const StepOutcome one = step_on(single_rank_grid(2));
    ASSERT_GT(one.result.dropped_choices, 0.3 * 2 * 2 * double(micros_of_all * seq_length));
    for (const Shape& s : shapes) {
      const Layout layout = layout_of(s);
      Grid* const grid = grid_of(layout);
      if (!grid) continue;
      const StepOutcome many = step_on(*grid);
      EXPECT_EQ(many.result.dropped_choices, one.result.dropped_choices) << layout.text();
      EXPECT_TRUE(within_limits(errors_of(one, many), DType::f64)) << layout.text() << ": " << errors_of(one, many).worst_gradient();
    }
  }
  sync_ranks();
}

// A layer that drops choices by weight, for sequences of few distinct tokens. Equal rows have equal weights up to
// rounding errors, which depend on the rank.
EngineConfig draw_with_ties(std::mt19937& random) {
  const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
  EngineConfig config = config_of(from(0, 1) ? Routing::sigmoid : Routing::softmax, false, 1);
  ModelConfig& m = config.model;
  m.pattern = "E", m.hidden_size = from(4, 40), m.vocab_size = from(3, 5);
  m.moe.experts = from(2, 12), m.moe.routing.groups = m.moe.routing.top_groups = 1;
  m.moe.routing.top_k = from(1, std::min<Index>(m.moe.experts, 3)), m.moe.routing.normalize = from(0, 1) > 0;
  m.moe.capacity_factor = 0.1 * double(from(2, 14)), m.moe.drop_policy = DropPolicy::probability;
  config.seq_length = from(17, 70);
  return config;
}

TEST(experts, tied_choices_drop_alike_on_context_ranks) {
  std::mt19937 random(seed_of_run());
  double dropped = 0;
  for (const int context : {2, 3, 5, 8})
    for (int draw = 0; draw < 8; ++draw) {
      const EngineConfig config = draw_with_ties(random);
      const auto step_on = [&](Grid& grid) {
        Rig<double> rig(config, grid);
        const auto source = [&](int micro) { return micro_batch(micro, 1, config.seq_length, config.model.vocab_size); };
        StepOutcome outcome{rig.engine.gradients(source, 1, 1), {}};
        outcome.gradients = gathered_gradients(rig.engine);
        return outcome;
      };
      const StepOutcome one = step_on(single_rank_grid(1));
      dropped += one.result.dropped_choices;
      Grid* const grid = grid_of(grid_layout(1, 1, 1, {{0, 1}}, {}, {}, context));
      if (!grid) continue;
      const Errors errors = errors_of(one, step_on(*grid));
      EXPECT_TRUE(within_limits(errors, DType::f64))
          << context << " context ranks, draw " << draw << ": loss off by " << errors.loss << ", gradients by " << errors.worst_gradient();
    }
  sync_ranks();
  EXPECT_GT(dropped, 100);
}

// Router biases of both layers after some steps, and the maximum expert load.
struct Balanced {
  double load = 0;
  NamedGradients biases;
};

Balanced balanced_on(Grid& grid) {
  const int data = grid.layout().size(Axis::data), micros = micros_of_all / data;
  EngineConfig config = config_of(Routing::sigmoid, true, micros);
  config.model.moe.bias_update_rate = 1e-3, config.model.moe.aux_loss = 0;
  Rig<double> rig(config, grid);
  const auto source = [&](int micro) {
    return micro_batch(Index(micro) * data + grid.coordinate(Axis::data), 1, seq_length, rig.engine.model().vocab_size);
  };
  for (const auto& p : rig.engine.stage().parameters().all())  // only the tokens determine the chosen experts
    if (p->weight.name.ends_with("correction_bias")) assign(rig.engine.device(), *p, [](Index) { return 0.0; });
  Balanced b;
  for (int step = 1; step <= 3; ++step) b.load = rig.engine.train(source, micros, step, 0).expert_load;
  for (const auto& p : rig.engine.parameters())
    if (const Piece kept = rig.engine.tensor(*p, Content::weight); p->weight.name.ends_with("correction_bias"))
      for (Index i = 0; i < kept.of.size(); ++i) b.biases[p->weight.name].push_back(kept.values.as<double>()(i));
  return b;
}

TEST(experts, router_bias_updates_agree_on_every_grid) {
  const Balanced one = balanced_on(single_rank_grid(2));
  ASSERT_GT(one.load, 1);
  ASSERT_LT(one.load, 3) << "two of six experts have all tokens";
  for (const auto& [name, bias] : one.biases) EXPECT_TRUE(std::any_of(bias.begin(), bias.end(), [](double b) { return b != 0; })) << name;
  for (const Shape& s : shapes) {
    const Layout layout = layout_of(s);
    Grid* const grid = grid_of(layout);
    if (!grid) continue;
    const Balanced here = balanced_on(*grid);
    EXPECT_EQ(here.load, one.load) << layout.text();
    for (const auto& [name, bias] : here.biases) {  // only a part of them if weights are sharded
      const std::vector<double>& all = one.biases.at(name);
      EXPECT_TRUE(std::search(all.begin(), all.end(), bias.begin(), bias.end()) != all.end()) << name << " on " << layout.text();
    }
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::experts_suite
