// SPDX-License-Identifier: BSD-3-Clause
// A step with values that are not finite stops, names the weight and changes nothing. Also: loss limit, reads from the
// device, and plans of GEMMs.
#include "src/engine/step/engine.hpp"

#include <algorithm>
#include <limits>

#include "kernels/ops/gemm.hpp"
#include "kernels/ops/sum.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::engine_suite {
namespace {

EngineConfig config_of(const Case& c) {
  EngineConfig e;
  e.model = c.model;
  e.micro_batch_size = c.batch, e.seq_length = c.seq_length;
  return e;
}

std::vector<double> values(const Parameter& p) {
  const auto v = p.vector<double>();
  return {v.data(), v.data() + p.size()};
}

TEST(engine, nonfinite_weight_is_named_and_nothing_changes) {
  const Case& c = named("T2");
  for (const std::string bad : {"model.layers.1.self_attn.o_proj.weight", "model.layers.0.mamba.A_log", "lm_head.weight"}) {
    Rig<double> rig(config_of(c), single_rank_grid(c.model.layers()));
    const Parameter* broken = nullptr;
    for (const auto& p : rig.engine.stage().parameters().all())
      if (p->weight.name == bad) broken = p.get();
    ASSERT_NE(broken, nullptr) << bad;
    assign(rig.engine.device(), *broken,
           [values = WeightValues(broken->weight)](Index i) { return i == 3 ? std::numeric_limits<double>::quiet_NaN() : values(i); });
    const auto& first = *rig.engine.stage().parameters().all().front();
    const std::vector<double> before = values(first);
    try {
      rig.engine.train([&](int) { return micro_batch(0, c.batch, c.seq_length, c.model.vocab_size); }, 1, 7, 1e-2);
      ADD_FAILURE() << bad << " was not detected";
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Exit::numeric);
      EXPECT_NE(std::string(error.what()).find("step 7"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("value of " + bad), std::string::npos) << error.what();
    }
    EXPECT_EQ(values(first), before) << bad;
  }
}

TEST(engine, a_loss_above_the_limit_changes_nothing) {
  const Case& c = named("T2");
  Rig<double> rig(config_of(c), single_rank_grid(c.model.layers()));
  const auto source = [&](int) { return micro_batch(0, c.batch, c.seq_length, c.model.vocab_size); };
  const auto& first = *rig.engine.stage().parameters().all().front();
  const std::vector<double> before = values(first);
  const double loss = rig.engine.gradients(source, 1, 1).loss;
  const StepResult above = rig.engine.train(source, 1, {1, 1e-2, 0, 0.999 * loss});
  EXPECT_TRUE(above.finite);
  EXPECT_FALSE(above.applied);
  EXPECT_EQ(values(first), before);
  EXPECT_TRUE(rig.engine.train(source, 1, {1, 1e-2, 0, 1.001 * loss}).applied);
  EXPECT_NE(values(first), before);
}

// Rotary angles are computed for the positions of one sequence. A document position beyond the sequence length is
// refused.
TEST(engine, a_position_beyond_the_sequence_is_refused) {
  const Case& c = named("T2");
  Rig<double> rig(config_of(c), single_rank_grid(c.model.layers()));
  MicroBatch m = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size);
  for (Index r = 0; r < c.batch * c.seq_length; ++r) m.positions.push_back(std::int32_t(r % c.seq_length + 1));
  EXPECT_THROW(rig.engine.gradients([&](int) { return m; }, 1, 1), Error);
}

TEST(engine, overflowing_gradient_is_named) {
  const Case& c = named("T2");
  Rig<float> rig(config_of(c), single_rank_grid(c.model.layers()));
  for (const auto& p : rig.engine.stage().parameters().all())
    if (p->weight.name == "model.layers.1.feed_forward.down_proj.weight")  // finite weights whose GEMM results overflow
      assign(rig.engine.device(), *p, [](Index) { return 3e38; });
  try {
    rig.engine.train([&](int) { return micro_batch(0, c.batch, c.seq_length, c.model.vocab_size); }, 1, 1, 1e-2);
    ADD_FAILURE() << "the overflow was not detected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::numeric);
    EXPECT_NE(std::string(error.what()).find("gradient of "), std::string::npos) << error.what();
  }
}

// The host reads from the device once per step, for any number of micro-batches, blocks of logits and weights.
TEST(engine, step_reads_device_memory_once) {
  const Case& c = named("T2");
  EngineConfig config = config_of(c);
  config.micro_batch_size = 2, config.seq_length = 200, config.micros = 3;  // two blocks of logits per micro-batch
  Rig<float> rig(config, single_rank_grid(c.model.layers()));
  rig.engine.initialise(7);
  const auto source = [&](int i) { return micro_batch(2 * i, 2, 200, c.model.vocab_size); };
  const auto reads = [&] {
    Index calls = 0;
    for (const Work& w : rig.engine.device().work())
      if (w.kernel == std::string(to_host_work)) calls += w.calls;
    rig.engine.device().clear_work();
    return calls;
  };
  for (int step = 1; step <= 2; ++step) {
    reads();
    rig.engine.train(source, 3, step, 1e-3);
    EXPECT_EQ(reads(), 1) << step;
  }
  rig.engine.evaluate(source, 3);
  EXPECT_EQ(reads(), 1) << "reads of an evaluation";
}

// A plan lists the shape and the number of calls of every GEMM. Their FLOPs add up to the GEMM work of the plan.
TEST(engine, plan_lists_every_gemm_of_step) {
  for (const DType precision : {DType::f64, DType::f32, DType::bf16}) {
    EngineConfig config = config_of(named("T2"));
    config.precision = precision;
    const RankPlan plan = plan_rank(config, grid_layout(1, 1, 1, {{0, config.model.layers()}}), 0);
    double flops = 0;
    for (const auto& [shape, calls] : plan.gemms)
      if (shape.kernel == "gemm") flops += 2.0 * double(calls * shape.m * shape.n * shape.k);
    const auto gemm = std::find_if(plan.work.begin(), plan.work.end(), [](const Work& w) { return std::string_view(w.kernel) == "gemm"; });
    ASSERT_NE(gemm, plan.work.end());
    EXPECT_EQ(flops, gemm->flops);
  }
}

TEST(engine, steps_do_not_depend_on_gemm_library) {
  const Case& c = named("T2");
  const auto losses = [&](GemmLibrary library) {
    EngineConfig config = config_of(c);
    config.gemm_library = library;
    Rig<float> rig(config, single_rank_grid(c.model.layers()));
    rig.engine.initialise(7);
    std::vector<double> all;
    for (int step = 1; step <= 3; ++step)
      all.push_back(rig.engine.train([&](int) { return micro_batch(step, c.batch, c.seq_length, c.model.vocab_size); }, 1, step, 1e-2).loss);
    return all;
  };
  const std::vector<double> expected = losses(GemmLibrary::automatic);
  for (const GemmLibrary library : {GemmLibrary::cblas, GemmLibrary::onednn}) {
    if (!available(library)) continue;
    const std::vector<double> other = losses(library);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(other[i], expected[i], 1e-5 * expected[i]) << int(library) << " step " << i + 1;
  }
}

// A rank with the same coordinates has the same work, memory and traffic.
TEST(engine, plans_do_not_depend_on_axis_order) {
  EngineConfig config = config_of(named("T2"));
  config.model = widened(named("T2"));
  const std::vector<Span> stages{{0, 3}, {3, 8}};
  const Layout usual = grid_layout(2, 2, 2, stages), other = grid_layout(2, 2, 2, stages, {}, {Axis::tensor, Axis::pipeline, Axis::data});
  for (int position = 0; position < usual.ranks(); ++position) {
    const RankPlan a = plan_rank(config, usual, position);
    const RankPlan b = plan_rank(config, other, other.position_at([&](Axis axis) { return usual.coordinate(position, axis); }));
    EXPECT_EQ(a.capacity.total(), b.capacity.total()) << position;
    EXPECT_EQ(a.parameters, b.parameters) << position;
    EXPECT_EQ(a.flops, b.flops) << position;
    EXPECT_EQ(ledger_of(a.traffic), ledger_of(b.traffic)) << position;
  }
}

}  // namespace
}  // namespace gyr::testing::engine_suite
