// SPDX-License-Identifier: BSD-3-Clause
// What a training step hands to every communicator equals the closed form of its layout, and what a plan says of a step
// (traffic, bytes by category, flops) is what the step then takes.
//   L layers of this stage, R rows of a micro-batch, D width, t tensor ranks, G norm groups, e and w bytes of the
//   scalar and accumulator
#include <map>

#include "regression/cases.hpp"
#include "regression/grids.hpp"
#include "regression/testing.hpp"
#include "src/plan.hpp"

namespace gyr {

inline bool operator==(const Traffic& a, const Traffic& b) { return a.calls == b.calls && a.bytes == b.bytes; }
inline void PrintTo(const Traffic& t, std::ostream* out) { *out << t.calls << " calls of " << t.bytes << " bytes"; }

}  // namespace gyr

namespace gyr::testing {
namespace {

constexpr Index batch = 2, head_block = 256;
constexpr Index part_by_part = 1, together = Index(1) << 30;  // bytes of a bucket

// Traffic by communicator and operation, where there was any.
using Ledger = std::map<std::pair<std::string, Operation>, Traffic>;

void add(Ledger& ledger, const std::string& communicator, Operation op, Index calls, Index bytes_each) {
  if (calls == 0) return;
  Traffic& entry = ledger[{communicator, op}];
  entry.calls += calls;
  entry.bytes += calls * bytes_each;
}

Ledger ledger_of(const std::vector<CommunicatorTraffic>& list) {
  Ledger ledger;
  for (const CommunicatorTraffic& c : list)
    for (int op = 0; op < operations; ++op)
      if (c.by_operation[op].calls > 0) ledger[{c.name, Operation(op)}] = c.by_operation[op];
  return ledger;
}

// Where one rank stands and what it computes with.
struct Place {
  EngineConfig config;
  int data, pipeline, tensor;  // sizes
  int stage;
  Index layers;        // of this stage
  Index narrow, wide;  // bytes of the scalar and of its accumulator

  bool first() const { return stage == 0; }
  bool last() const { return stage == pipeline - 1; }
  const ModelConfig& model() const { return config.model; }
  Index rows() const { return config.micro_batch * config.length; }
  Index stream_bytes() const { return rows() * model().width * narrow; }
  Index here(Index units) const { return std::max<Index>(1, units / tensor); }
  int replicas(Index units) const { return int(std::max<Index>(1, tensor / units)); }
  Index tokens_here() const { return (model().vocabulary + tensor - 1) / tensor; }
  std::string block(int size) const { return size == tensor ? "tensor" : fmt::format("tensor/{}", size); }
};

// Lengths of this rank's weights in the order of the model, each on the next multiple of 64 unless it continues the one
// before.
struct Extent {
  Index at = 0;
  void next(Index size) { align(), at += size; }
  void more(Index size) { at += size; }
  void align() { at = (at + 63) / 64 * 64; }
};

Index flat_extent(const Place& p) {
  const ModelConfig& m = p.model();
  const MambaConfig& c = m.mamba;
  const Index d = m.width, heads = p.here(c.heads), inner = heads * c.width, group = p.here(c.groups) * c.state;
  const Index channels = inner + 2 * group, projected = 2 * inner + 2 * group + heads;
  const Index q = p.here(m.attention.heads) * m.attention.width, k = p.here(m.attention.key_heads) * m.attention.width;
  const Index f = p.here(m.mlp.width);
  Extent x;
  if (p.first()) x.next(p.tokens_here() * d);
  for (Index i = 0; i < p.layers; ++i) {
    x.next(d);
    x.next(projected * d);
    if (c.in_bias) x.next(projected);
    x.next(channels * c.taps);
    if (c.convolution_bias) x.next(channels);
    for (int vector = 0; vector < 3; ++vector) x.next(heads);
    if (c.norm != SsmNorm::none) x.next(inner);
    x.next(d * inner);
    if (c.out_bias) x.next(d);
    x.next(q * d), x.more(k * d), x.more(k * d), x.next(d * q);
    if (m.attention.bias) x.next(q), x.more(k), x.more(k), x.next(d);
    x.next(d);
    x.next(f * d), x.more(f * d), x.next(d * f);
    if (m.mlp.bias) x.next(f), x.more(f), x.next(d);
  }
  if (p.last()) x.next(d);
  if (p.last() && !(p.first() && m.tied)) x.next(p.tokens_here() * d);
  x.align();
  return x.at;
}

// Every layer sums its two residuals each way; the embedding once, the head's input gradient once, and each block of
// logits its largest element and two sums per row. Norm groups over several ranks add a number per row each way.
void tensor_axis(const Place& p, Ledger& ledger) {
  if (p.tensor == 1) return;
  const auto reduce = [&](const std::string& name, Index calls, Index bytes) {
    add(ledger, name, Operation::all_reduce, calls, bytes);
  };
  const MambaConfig& c = p.model().mamba;
  const Index micros = p.config.micros;
  reduce("tensor", micros * (4 * p.layers + p.first() + p.last()), p.stream_bytes());
  for (Index row = 0; row < p.rows() && p.last(); row += head_block) {
    const Index rows = std::min(head_block, p.rows() - row);
    reduce("tensor", micros, rows * p.wide);
    reduce("tensor", micros, 2 * rows * p.wide);
  }
  const int norm_ranks = p.replicas(c.groups);
  if (c.norm != SsmNorm::none && norm_ranks > 1)
    reduce(p.block(norm_ranks), micros * 2 * p.layers, p.rows() * p.here(c.groups) * p.wide);
}

// Heads and groups that several ranks hold: their gradients are summed once per step, all those of one number of
// replicas together.
void replicas(const Place& p, Ledger& ledger) {
  const ModelConfig& m = p.model();
  std::map<int, Index> elements;
  elements[p.replicas(m.attention.key_heads)] += 2 * m.attention.width * (m.width + m.attention.bias);
  elements[p.replicas(m.mamba.groups)] +=
      2 * m.mamba.state * (m.width + m.mamba.in_bias + m.mamba.taps + m.mamba.convolution_bias);
  for (const auto& [count, each] : elements)
    if (count > 1) add(ledger, p.block(count), Operation::all_reduce, 1, p.layers * each * p.wide);
}

void pipeline_axis(const Place& p, Ledger& ledger) {
  const Index neighbours = !p.first() + !p.last();
  add(ledger, "pipeline", Operation::send, p.config.micros * neighbours, p.stream_bytes());
  add(ledger, "pipeline", Operation::receive, p.config.micros * neighbours, p.stream_bytes());
  if (p.model().tied && p.pipeline > 1 && (p.first() || p.last()))
    add(ledger, "ends", Operation::all_reduce, 1, p.tokens_here() * p.model().width * p.wide);
}

// All gradients once: together, or part by part where a bucket takes no more than one.
void data_axis(const Place& p, Ledger& ledger) {
  if (p.data == 1) return;
  const Index calls = p.config.bucket_bytes == part_by_part ? p.layers + p.first() + p.last() : 1;
  ledger[{"data", Operation::all_reduce}] = {calls, flat_extent(p) * p.wide};
}

template <class T>
Ledger closed_form(const EngineConfig& config, const Layout& layout, int position) {
  const int stage = layout.coordinate(position, "pipeline");
  const Place p{config, layout.size("data"),         layout.size("pipeline"), layout.size("tensor"),
                stage,  layout.stages[stage].size(), Index(sizeof(T)),        std::is_same_v<T, double> ? 8 : 4};
  Ledger ledger;
  tensor_axis(p, ledger);
  replicas(p, ledger);
  pipeline_axis(p, ledger);
  data_axis(p, ledger);
  return ledger;
}

struct Shape {
  int data, pipeline, tensor;
};
constexpr Shape shapes[] = {{8, 1, 1}, {2, 2, 2}, {1, 1, 8}, {1, 4, 2}, {1, 8, 1}, {4, 1, 2}, {1, 2, 4}};

Layout layout_of(const Shape& s) {
  std::vector<Span> stages;
  for (int i = 0; i < s.pipeline; ++i) stages.push_back({8 * i / s.pipeline, 8 * (i + 1) / s.pipeline});
  return grid_layout(s.data, s.pipeline, s.tensor, stages);
}

EngineConfig config_of(const ModelConfig& model, Index length, Index bucket_bytes) {
  EngineConfig c;
  c.model = model;
  c.micro_batch = batch, c.length = length;
  c.micros = 3;
  c.bucket_bytes = bucket_bytes;
  return c;
}

// What a step hands over on this rank, which is what its plan says.
template <class T>
Ledger expect_as_planned(const EngineConfig& config, const Layout& layout, const std::string& where) {
  Grid& grid = *grid_of(layout);
  const RankPlan plan = plan_rank<T>(config, layout, grid.position());
  Rig<T> rig(config, grid);
  grid.visit([](Communicator& c) { c.clear_traffic(); });
  rig.engine.device().clear_work();
  const auto source = [&](int micro) {
    return micro_batch(Index(micro) * batch, batch, config.length, config.model.vocabulary);
  };
  rig.engine.train(source, config.micros, 1, 1e-3);

  const Ledger counted = ledger_of(traffic_of(grid));
  EXPECT_EQ(ledger_of(plan.traffic), counted) << where;
  for (int i = 0; i < memory_categories; ++i)
    EXPECT_EQ(rig.engine.measured().bytes(Memory(i)), plan.capacity.bytes(Memory(i)))
        << where << " " << name_of(Memory(i));
  EXPECT_EQ(rig.engine.device().flops(), plan.flops) << where;
  EXPECT_GT(plan.flops, 0) << where;
  return counted;
}

template <class T>
void expect_closed_form(const EngineConfig& config, const Layout& layout, const std::string& where) {
  EXPECT_EQ(expect_as_planned<T>(config, layout, where), closed_form<T>(config, layout, grid_of(layout)->position())) << where;
}

template <class T>
void every_layout(const std::string& name, Index bucket_bytes) {
  for (const Shape& s : shapes) {
    const Layout layout = layout_of(s);
    expect_closed_form<T>(config_of(widened(named(name)), 5, bucket_bytes), layout,
                          fmt::format("{} data {} pipeline {} tensor {}", name, s.data, s.pipeline, s.tensor));
  }
  meet();
}

class traffic : public ::testing::TestWithParam<std::string> {};

TEST_P(traffic, is_the_closed_form_and_the_plan_in_double) { every_layout<double>(GetParam(), part_by_part); }
TEST_P(traffic, is_the_closed_form_and_the_plan_in_single) { every_layout<float>(GetParam(), together); }
TEST_P(traffic, is_the_closed_form_and_the_plan_in_bf16) { every_layout<bf16>(GetParam(), part_by_part); }

INSTANTIATE_TEST_SUITE_P(T, traffic, ::testing::Values("T2", "T3", "T5", "T6", "T7"),
                         [](const auto& info) { return info.param; });

// Logits go block by block: the head of a long micro-batch reduces each block by itself, the last one shorter.
TEST(traffic, of_several_blocks_of_logits) {
  const Layout layout = layout_of({2, 1, 4});
  expect_closed_form<float>(config_of(widened(named("T5")), 150, together), layout, "300 rows");
  meet();
}

// Gradients of frozen weights are not sent: with the layers and the embedding frozen, the data axis sums those of the head alone. A step of
// scattered frozen weights is planned as exactly.
TEST(traffic, of_frozen_weights_is_none) {
  for (const Shape& s : shapes) {
    const Layout layout = layout_of(s);
    const std::string where = fmt::format("data {} pipeline {} tensor {}", s.data, s.pipeline, s.tensor);
    EngineConfig config = config_of(widened(named("T2")), 5, part_by_part);
    config.optimizer.frozen = {"*.k_proj.weight", "*.up_proj.weight", "*.mamba.*", "model.layers.7.*"};
    expect_as_planned<double>(config, layout, where);
    config.optimizer.frozen = {"model.layers.*", "model.embed_tokens.weight"};
    const Ledger counted = expect_as_planned<double>(config, layout, where);
    const bool last = grid_of(layout)->coordinate("pipeline") == s.pipeline - 1;
    Extent head;
    head.next(config.model.width), head.next((config.model.vocabulary + s.tensor - 1) / s.tensor * config.model.width), head.align();
    const auto sums = counted.find({"data", Operation::all_reduce});
    EXPECT_EQ(sums == counted.end() ? Traffic{} : sums->second, (last && s.data > 1 ? Traffic{1, head.at * 8} : Traffic{})) << where;
  }
  meet();
}

// 64 ranks are planned one after the other; none of them exists.
TEST(traffic, of_grids_larger_than_this_one_is_the_closed_form) {
  ModelConfig model = named("T3").model;
  model.pattern = std::string(16, 'P');
  model.width = 96, model.vocabulary = 1000;
  model.attention = {16, 4, 8, 1e4, true};
  model.mamba.heads = 16, model.mamba.groups = 2, model.mamba.in_bias = model.mamba.out_bias = true;
  model.mlp = {64, true};
  std::vector<Span> stages;
  for (int s = 0; s < 4; ++s) stages.push_back({4 * s, 4 * (s + 1)});
  const Layout layout = grid_layout(2, 4, 8, stages);
  for (const bool tied : {false, true}) {
    model.tied = tied;
    const EngineConfig config = config_of(model, 400, part_by_part);
    for (int position = 0; position < layout.ranks(); ++position)
      EXPECT_EQ(ledger_of(plan_rank<bf16>(config, layout, position).traffic),
                closed_form<bf16>(config, layout, position))
          << position;
  }
}

}  // namespace
}  // namespace gyr::testing
