// SPDX-License-Identifier: BSD-3-Clause
// Steps that repeat themselves: models and layouts drawn at random are trained for some steps, once so that a device is told what it can be told as
// graphs (src/engine/step/graphs.hpp) and once kernel by kernel. Both end with the same bits, and hand over in every step what the closed form says,
// for the same purposes. Of devices without graphs it is the same twice.
#include "regression/support/cases.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/draw.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::repeated_steps_suite {
namespace {

constexpr int steps = 3;  // a slot's third micro-batch is the first that is launched and not told

// Of such a draw what the closed form knows and a device may be told as graphs; nothing where too little is left of it. In bf16 there are experts.
std::optional<Draw> repeated(Draw d, DType dtype) {
  ModelConfig& m = d.model;
  if (d.source_length > 0 || m.attention.relative_bias.buckets > 0) return std::nullopt;
  d.ordered = false, d.classes = 0, d.beta = 0, d.offload = {}, d.frozen.clear(), m.lora = {};
  d.expert = 1, m.moe.capacity_factor = m.moe.bias_update_rate = 0, m.moe.bias = false;
  if (dtype == DType::bf16) m.pattern.back() = 'E';
  for (std::string* pattern : {&m.pattern, &d.ahead.pattern}) {
    if (dtype != DType::bf16) std::replace(pattern->begin(), pattern->end(), 'E', '-');
    if (d.context > 3) std::replace(pattern->begin(), pattern->end(), 'W', '*');  // rings that end early do not end at a neighbour
  }
  if (d.context > 3 && d.context_mode == ContextMode::balanced) d.context_mode = ContextMode::ring;
  if (!can_shard(d.whole_model(), d.tensor, d.attention_ranks)) return std::nullopt;
  if (d.shard != Shard::none) d.shard = Shard::optimizer;
  if (d.shard != Shard::none && !closed_form_of_parts<double>(d.config(d.micros), d.layout(), 0).empty()) d.shard = Shard::none;
  return d;
}

// The i-th micro-batch of a step, which learns something.
MicroBatch batch_of(const Draw& d, int step, Index i) {
  MicroBatch m = d.batch(100 * step + i);
  const bool some = std::any_of(m.labels.begin(), m.labels.end(), [](Token label) { return label != ignored_label; });
  if (i == 0 && !some) m.labels[0] = m.tokens[0];
  return m;
}

// By communicator, operation and what it is for.
using Lines = std::map<std::tuple<std::string, Operation, std::string>, Traffic>;

// What each step says and hands over, and the bits that the last one leaves.
struct Course {
  std::vector<double> said;  // loss and norm
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
    course.said.insert(course.said.end(), {r.loss, r.gradient_norm});
    const std::vector<CommunicatorTraffic> traffic = traffic_of(grid);
    course.ledgers.push_back(ledger_of(traffic));
    Lines& lines = course.lines.emplace_back();
    for (const CommunicatorTraffic& c : traffic)
      for (const TrafficCount::Line& line : c.count.lines())
        if (line.traffic.calls > 0) lines[{c.name, line.operation, line.purpose}] = line.traffic;
  }
  for (const auto& p : rig.engine.parameters())
    for (const Content content : {Content::weight, Content::first_moment, Content::second_moment, Content::master})
      if (const Piece x = rig.engine.tensor(*p, content)) copy_to_host(x.numbers, course.kept.emplace_back(std::size_t(x.numbers.bytes())).data());
  course.graphs = rig.engine.graphs();
  return course;
}

Ledger closed_form_in(DType dtype, const EngineConfig& config, const Layout& layout, int position) {
  if (dtype == DType::bf16) return closed_form<bf16>(config, layout, position);
  return dtype == DType::f32 ? closed_form<float>(config, layout, position) : closed_form<double>(config, layout, position);
}

TEST(repeated_steps, have_the_bits_and_the_traffic_of_kernels) {
  const std::uint64_t seed = seed_of_run();
  constexpr int courses = 4, most_ranks = 4;
  std::map<std::string, int> seen;
  for (Index number = 0, found = 0; found < courses || seen.size() < 6; ++number) {
    ASSERT_LT(number, 400) << found << " draws that repeat themselves";
    const DType dtype = std::array{DType::bf16, DType::f32, DType::f64}[found % 3];
    const std::optional<Draw> drawn = repeated(draw(seed, number, most_ranks), dtype);
    if (!drawn) continue;
    const Draw& d = *drawn;
    ++found;
    SCOPED_TRACE(fmt::format("seed {}, draw {} in {}: {}", seed, number, name_of(dtype), d.text()));
    number += 4 - number % 5;  // the next has another layout
    for (const auto& [axis, ranks] : {std::pair{"tensor", d.tensor}, {"pipeline", d.pipeline}, {"context", d.context}, {"data", d.data}})
      if (ranks > 1) ++seen[axis];
    if (d.packed) ++seen["with documents"];
    if (d.model.dropout.any()) ++seen["with dropout"];
    Grid* const grid = grid_of(d.layout());
    if (!grid) continue;
    const Course graphs = course_of(d, dtype, *grid, "on"), kernels = course_of(d, dtype, *grid, "off");
    EXPECT_EQ(graphs.graphs, DeviceGraph::possible() ? "micro-batches, gradient norm and optimizer" : "");
    EXPECT_EQ(kernels.graphs, "");
    EXPECT_EQ(graphs.said, kernels.said);
    EXPECT_TRUE(graphs.kept == kernels.kept) << "what is kept has other bits";
    const Ledger closed = closed_form_in(dtype, d.config(d.micros), d.layout(), grid->position());
    for (int step = 0; step < steps; ++step) {
      EXPECT_EQ(graphs.ledgers[step], closed) << "step " << step + 1;
      EXPECT_EQ(graphs.lines[step], kernels.lines[step]) << "step " << step + 1;
    }
  }
  meet();
  std::string all;
  for (const auto& [kind, times] : seen) all += fmt::format(" {} {}", times, kind);
  fmt::print("courses of several ranks by axis:{}\n", all);
}

}  // namespace
}  // namespace gyr::testing::repeated_steps_suite
