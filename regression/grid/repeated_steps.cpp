// SPDX-License-Identifier: BSD-3-Clause
// Training steps with CUDA graph capture and replay (src/engine/step/graphs.hpp). Random models and layouts are trained for
// some steps with graphs and without. Both must end with the same bits. Every step must transfer what the closed form
// says, for the same purposes. On devices without graphs, both runs are the same.
#include "regression/support/cases.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/draw.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::repeated_steps_suite {
namespace {

constexpr int steps = 3;  // the third micro-batch of a slot is the first that is replayed instead of captured

// Restricts a draw to what the closed form knows and what CUDA graphs support. Empty if this is not possible. Draws in
// bf16 get an expert layer.
std::optional<Draw> repeated(Draw d, DType dtype) {
  ModelConfig& m = d.model;
  if (d.source_length > 0 || m.attention.relative_bias.buckets > 0) return std::nullopt;
  d.ordered = false, d.classes = 0, d.beta = 0, d.offload = {}, d.frozen.clear(), m.lora = {};
  d.expert = 1, m.moe.capacity_factor = m.moe.bias_update_rate = 0, m.moe.bias = false;
  if (dtype == DType::bf16) m.pattern.back() = 'E';
  for (std::string* pattern : {&m.pattern, &d.ahead.pattern}) {
    if (dtype != DType::bf16) std::replace(pattern->begin(), pattern->end(), 'E', '-');
    // with windows, the ring exchange ends early, at a rank that is no neighbour
    if (d.context > 3) std::replace(pattern->begin(), pattern->end(), 'W', '*');
  }
  if (d.context > 3 && d.context_mode == ContextMode::balanced) d.context_mode = ContextMode::ring;
  if (!can_shard(d.full_model(), d.tensor, d.attention_ranks)) return std::nullopt;
  if (d.shard != Shard::none) d.shard = Shard::optimizer;
  if (d.shard != Shard::none && !closed_form_of_parts<double>(d.config(d.micros), d.layout(), 0).empty()) d.shard = Shard::none;
  return d;
}

// Micro-batch i of a step. The first one has at least one label.
MicroBatch batch_of(const Draw& d, int step, Index i) {
  MicroBatch m = d.batch(100 * step + i);
  const bool some = std::any_of(m.labels.begin(), m.labels.end(), [](Token label) { return label != ignored_label; });
  if (i == 0 && !some) m.labels[0] = m.tokens[0];
  return m;
}

// Traffic by communicator, operation and purpose.
using Lines = std::map<std::tuple<std::string, Operation, std::string>, Traffic>;

// Results and traffic of each step, and the bytes of the final state.
struct Course {
  std::vector<double> results;  // loss and gradient norm of each step
  std::vector<Ledger> ledgers;
  std::vector<Lines> lines;
  std::vector<std::vector<std::byte>> kept;
  std::string graphs;
};

Course course_of(const Draw& d, DType dtype, Grid& grid, const char* graphs) {
  setenv("GYR_CUDA_GRAPHS", graphs, 1);
  EngineConfig config = d.config(d.micros);
  config.precision = dtype;
  AnyRig rig(config, grid);
  unsetenv("GYR_CUDA_GRAPHS");
  const int mine = grid.coordinate(Axis::data);
  Course course;
  for (int step = 1; step <= steps; ++step) {
    grid.visit([](Communicator& c) { c.clear_traffic(); });
    const StepResult r = rig.engine.train([&](int i) { return batch_of(d, step, Index(i) * d.data + mine); }, d.micros, step, 1e-2 / step);
    course.results.insert(course.results.end(), {r.loss, r.gradient_norm});
    const std::vector<CommunicatorTraffic> traffic = traffic_of(grid);
    course.ledgers.push_back(ledger_of(traffic));
    Lines& lines = course.lines.emplace_back();
    for (const CommunicatorTraffic& c : traffic)
      for (const TrafficCount::Line& line : c.count.lines())
        if (line.traffic.calls > 0) lines[{c.name, line.operation, line.purpose}] = line.traffic;
  }
  for (const auto& p : rig.engine.parameters())
    for (const Content content : {Content::weight, Content::state("first_moment"), Content::state("second_moment"), Content::master})
      if (const Piece x = rig.engine.tensor(*p, content)) copy_to_host(x.values, course.kept.emplace_back(std::size_t(x.values.bytes())).data());
  course.graphs = rig.engine.graphs();
  return course;
}

Ledger closed_form_in(DType dtype, const EngineConfig& config, const Layout& layout, int position) {
  if (dtype == DType::bf16) return closed_form<bf16>(config, layout, position);
  return dtype == DType::f32 ? closed_form<float>(config, layout, position) : closed_form<double>(config, layout, position);
}

TEST(repeated_steps, graph_replay_keeps_bits_and_traffic) {
  const std::uint64_t seed = seed_of_run();
  constexpr int courses = 4, most_ranks = 4;
  std::map<std::string, int> seen;
  for (Index number = 0, found = 0; found < courses || seen.size() < 6; ++number) {
    ASSERT_LT(number, 400) << found << " draws support graphs";
    const DType dtype = std::array{DType::bf16, DType::f32, DType::f64}[found % 3];
    const std::optional<Draw> drawn = repeated(draw(seed, number, most_ranks), dtype);
    if (!drawn) continue;
    const Draw& d = *drawn;
    ++found;
    SCOPED_TRACE(fmt::format("seed {}, draw {} in {}: {}", seed, number, name_of(dtype), d.text()));
    number += 4 - number % 5;  // so that the next draw has another layout
    for (const auto& [axis, ranks] : {std::pair{"tensor", d.tensor}, {"pipeline", d.pipeline}, {"context", d.context}, {"data", d.data}})
      if (ranks > 1) ++seen[axis];
    if (d.packed) ++seen["with documents"];
    if (d.model.dropout.any()) ++seen["with dropout"];
    Grid* const grid = grid_of(d.layout());
    if (!grid) continue;
    const Course graphs = course_of(d, dtype, *grid, "on"), kernels = course_of(d, dtype, *grid, "off");
    EXPECT_EQ(graphs.graphs, DeviceGraph::possible() ? "micro-batches, gradient norm and optimizer" : "");
    EXPECT_EQ(kernels.graphs, "");
    EXPECT_EQ(graphs.results, kernels.results);
    EXPECT_TRUE(graphs.kept == kernels.kept) << "the final states differ";
    const Ledger closed = closed_form_in(dtype, d.config(d.micros), d.layout(), grid->position());
    for (int step = 0; step < steps; ++step) {
      EXPECT_EQ(graphs.ledgers[step], closed) << "step " << step + 1;
      EXPECT_EQ(graphs.lines[step], kernels.lines[step]) << "step " << step + 1;
    }
  }
  sync_ranks();
  std::string all;
  for (const auto& [kind, times] : seen) all += fmt::format(" {} {}", times, kind);
  fmt::print("runs on several ranks, by axis and feature:{}\n", all);
}

}  // namespace
}  // namespace gyr::testing::repeated_steps_suite
