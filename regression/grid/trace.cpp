// SPDX-License-Identifier: BSD-3-Clause
// Traces of real steps. Spans nest, and transfers are those that the communicators count. A transfer that should overlap
// computation begins before it and is waited for after it.
//   GYR_SEED=1 GYR_DRAWS=40   selects the random layouts and models
#include "src/trace/trace.hpp"

#include <cstdlib>
#include <map>

#include "regression/support/closed_form.hpp"
#include "regression/support/draw.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/shared_folder.hpp"
#include "regression/support/testing.hpp"
#include "src/trace/clock.hpp"
#include "src/trace/trace_summary.hpp"

namespace gyr::testing::trace_suite {
namespace {

using Work = Recorder::Work;
using Transfer = Recorder::Transfer;
constexpr Index seq_length = 8;

// Records of some steps on one rank. No transfer is in progress any more.
struct Recorded {
  std::unique_ptr<Recorder> recorder = std::make_unique<Recorder>(1 << 16);
  Ledger traffic;

  const std::vector<Work>& work() const { return recorder->work(); }
  std::string channel(const Transfer& t) const { return recorder->channels()[t.channel]; }
  std::vector<Transfer> transfers(const std::string& channel_name, Operation op) const {
    std::vector<Transfer> some;
    for (const Transfer& t : recorder->transfers())
      if (t.counted && channel(t) == channel_name && t.operation == name_of(op)) some.push_back(t);
    return some;
  }
};

bool is_computation(const Work& w) {
  const std::string_view name = w.name;
  return name.starts_with("forward") || name.starts_with("backward");
}

template <class T>
Recorded recorded(const EngineConfig& config, Grid& grid, const MicroBatches& source, int steps = 1, bool kernels = false) {
  Recorded all;
  {
    Rig<T> rig(config, grid);
    grid.visit([](Communicator& c) { c.clear_traffic(); });
    grid.record(all.recorder.get());
    rig.engine.device().record(kernels ? all.recorder.get() : nullptr);
    for (int step = 1; step <= steps; ++step) {
      const Recorder::Span span(grid.recorder(), step_span);
      rig.engine.train(source, config.micros, step, 1e-3);
    }
    all.traffic = ledger_of(traffic_of(grid));
    grid.record(nullptr);
  }
  return all;
}

EngineConfig config_of(const ModelConfig& model, int micros, Schedule schedule = one_f_one_b) {
  EngineConfig c;
  c.model = model, c.seq_length = seq_length, c.micros = micros, c.schedule = schedule;
  return c;
}

Recorded recorded_on(const Layout& layout, const EngineConfig& config, int steps = 1, bool kernels = false) {
  Grid& grid = *grid_of(layout);
  const auto source = [&](int micro) { return micro_batch(micro, config.micro_batch_size, config.seq_length, config.model.vocab_size); };
  return recorded<double>(config, grid, source, steps, kernels);
}

// ---- Spans and transfers

// Each span lies inside another one or after it, and all lie inside the step.
void expect_nested(const std::vector<Work>& work) {
  std::vector<Work> around;
  for (const Work& w : work) {
    ASSERT_NE(w.end, 0) << w.name << " has no end";
    ASSERT_LE(w.begin, w.end) << w.name;
    while (!around.empty() && around.back().end <= w.begin) around.pop_back();
    if (!around.empty()) {
      ASSERT_GE(w.begin, around.back().begin) << w.name << " in " << around.back().name;
      ASSERT_LE(w.end, around.back().end) << w.name << " in " << around.back().name;
    }
    ASSERT_EQ(around.empty(), std::string_view(w.name) == step_span) << w.name;
    around.push_back(w);
  }
}

// Waits are in order and disjoint, and each lies inside every span that it overlaps.
void expect_disjoint_waits(const Recorded& r) {
  std::vector<Work> all = r.work();
  std::map<Moment, Moment> waits;
  for (const Transfer& t : r.recorder->transfers()) {
    ASSERT_NE(t.end, 0);
    ASSERT_LE(t.begin, t.end);
    if (t.wait_end == 0) continue;
    ASSERT_LE(t.begin, t.wait_begin);
    ASSERT_LE(t.wait_begin, t.end);
    ASSERT_LE(t.end, t.wait_end);
    waits[t.wait_begin] = t.wait_end;
  }
  Moment before = 0;
  for (const auto& [begin, end] : waits) {
    ASSERT_GE(begin, before) << "a rank waits for one transfer at a time";
    before = end;
    for (const Work& w : all) ASSERT_TRUE(end <= w.begin || begin >= w.end || (begin >= w.begin && end <= w.end)) << w.name;
  }
}

Ledger ledger_of(const Recorded& r) {
  Ledger sums;
  for (const Transfer& t : r.recorder->transfers()) {
    if (!t.counted) continue;
    for (int op = 0; op < operations; ++op)
      if (name_of(Operation(op)) == t.operation) ++sums[{r.channel(t), Operation(op)}].calls, sums[{r.channel(t), Operation(op)}].bytes += t.bytes;
  }
  return sums;
}

Index number_of(const char* variable, Index otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

TEST(trace, spans_nest_and_transfers_match_counted_traffic) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Index seed = number_of("GYR_SEED", 1), draws = number_of("GYR_DRAWS", 40);
  int seen = 0;
  for (Index i = 0; i < draws; ++i) {
    const Draw d = draw(std::uint64_t(seed), i, ranks);
    if (!can_shard(d.model, d.tensor, d.attention_ranks)) continue;
    if (Grid* const grid = grid_of(d.layout())) {
      SCOPED_TRACE(fmt::format("seed {}, draw {}: {}", seed, i, d.text()));
      const auto source = [&](int micro) { return d.batch(Index(micro) * d.data + grid->coordinate(Axis::data)); };
      const Recorded r = recorded<double>(d.config(d.micros), *grid, source, 2);
      expect_nested(r.work());
      expect_disjoint_waits(r);
      EXPECT_EQ(ledger_of(r), r.traffic);
      EXPECT_EQ(r.recorder->left_out(), 0);
    }
    ++seen;
    sync_ranks();
  }
  std::printf("seed %d, %d draws\n", int(seed), seen);
  EXPECT_TRUE(draws < 40 || seen > 25);
}

TEST(trace, nothing_is_recorded_without_a_recorder) {
  const Layout layout = layout_of(2, 2, 2);
  Grid& grid = *grid_of(layout);
  Recorder recorder(1000);
  grid.record(&recorder);
  grid.record(nullptr);
  const EngineConfig config = config_of(widened(named("T2")), 2);
  Rig<double> rig(config, grid);
  rig.engine.train([&](int micro) { return micro_batch(micro, 1, seq_length, 62); }, 2, 1, 1e-3);
  EXPECT_TRUE(recorder.work().empty() && recorder.transfers().empty() && recorder.kernels().empty());
  sync_ranks();
}

// ---- Transfers that overlap computation

// Number of computations that begin after the start of a transfer and end before the wait for it.
int overlapped_computations(const Transfer& t, const std::vector<Work>& work) {
  const Moment until = t.wait_end != 0 ? t.wait_begin : std::numeric_limits<Moment>::max();
  return int(std::count_if(work.begin(), work.end(), [&](const Work& w) { return is_computation(w) && w.begin >= t.begin && w.end <= until; }));
}

// Calls look(layout, grid) on the ranks of each layout. All ranks wait for each other afterwards, also if an ASSERT
// ends it early.
template <class Look>
void on_each(const std::vector<Layout>& layouts, const Look& look) {
  for (const Layout& layout : layouts) {
    Grid* const grid = grid_of(layout);
    SCOPED_TRACE(layout.text());
    if (grid) look(layout, *grid);
    sync_ranks();
  }
}

std::vector<Layout> all_sharded(const std::vector<Layout>& plain, Shard shard) {
  std::vector<Layout> layouts;
  for (const Layout& layout : plain) layouts.push_back(sharded(layout, shard, part_by_part));
  return layouts;
}

Index layers_of(const Layout& layout) { return 8 / layout.size(Axis::pipeline); }

// Gradients are all-reduced bucket by bucket during the backward. All buckets but the last begin before the last
// backward begins, and none is waited for before all backwards have ended.
TEST(trace, gradient_all_reduce_overlaps_the_backward) {
  for (const Schedule schedule : {one_f_one_b, zero_bubble})
    on_each(all_sharded({layout_of(2, 1, 1), layout_of(2, 2, 2), layout_of(4, 1, 2), layout_of(8, 1, 1)}, Shard::none),
            [&](const Layout& layout, Grid&) {
              const bool pipelined = layout.size(Axis::pipeline) > 1;
              const Recorded r = recorded_on(layout, config_of(widened(named("T2")), 3, pipelined ? schedule : one_f_one_b));
              const std::vector<Transfer> sums = r.transfers("data", Operation::all_reduce);
              ASSERT_GE(Index(sums.size()), layers_of(layout));
              Moment last_begin = 0, last_end = 0;
              for (const Work& w : r.work())
                if (is_computation(w)) last_begin = std::max(last_begin, w.begin), last_end = std::max(last_end, w.end);
              EXPECT_EQ(std::count_if(sums.begin(), sums.end(), [&](const Transfer& t) { return t.begin > last_begin; }), 1)
                  << "buckets that begin after the last backward began";
              for (const Transfer& t : sums) EXPECT_TRUE(t.wait_end == 0 || t.wait_begin >= last_end);
              for (std::size_t i = 0; i + 1 < sums.size(); ++i) EXPECT_GE(overlapped_computations(sums[i], r.work()), 1) << "sum " << i;
            });
}

// ZeRO-3: the all-gather of the next bucket overlaps the computation with the present one. Only the first bucket of a
// step is waited for at once.
TEST(trace, weight_all_gather_overlaps_previous_computation) {
  on_each(all_sharded({layout_of(2, 1, 1), layout_of(2, 2, 1), layout_of(4, 1, 2)}, Shard::weights), [](const Layout& layout, Grid&) {
    const Recorded r = recorded_on(layout, config_of(widened(named("T2")), 2));
    const std::vector<Transfer> gathers = r.transfers("data", Operation::all_gather);
    ASSERT_GE(Index(gathers.size()), 2 * layers_of(layout));
    const auto exposed = std::count_if(gathers.begin(), gathers.end(), [&](const Transfer& t) { return overlapped_computations(t, r.work()) == 0; });
    EXPECT_LE(exposed, 2) << "exposed gathers out of " << gathers.size();
  });
}

// ZeRO-1: updated weights are all-gathered during the forward of the next step. Each is waited for where it is needed.
TEST(trace, optimizer_all_gather_overlaps_the_next_forward) {
  on_each(all_sharded({layout_of(2, 1, 1), layout_of(2, 2, 2), layout_of(4, 1, 2)}, Shard::optimizer), [](const Layout& layout, Grid&) {
    const Recorded r = recorded_on(layout, config_of(widened(named("T2")), 2), 2);
    const auto second = std::find_if(r.work().begin() + 1, r.work().end(), [](const Work& w) { return w.name == std::string_view(step_span); });
    std::vector<Transfer> between;
    for (const Transfer& t : r.transfers("data", Operation::all_gather))
      if (t.begin < second->begin) between.push_back(t);
    ASSERT_GE(Index(between.size()), layers_of(layout));
    for (const Transfer& t : between) EXPECT_TRUE(t.wait_end == 0 || t.wait_begin >= second->begin) << "a gather is waited for in the same step";
    const auto late = std::count_if(between.begin(), between.end(), [&](const Transfer& t) { return overlapped_computations(t, r.work()) == 0; });
    EXPECT_LE(late, 2) << "exposed gathers out of " << between.size();
  });
}

// The sends of the first pipeline stage overlap its computation of the next micro-batch.
TEST(trace, pipeline_send_overlaps_the_next_forward) {
  on_each({layout_of(1, 2, 1), layout_of(2, 2, 2), layout_of(1, 4, 2)}, [](const Layout& layout, Grid& grid) {
    const Recorded r = recorded_on(layout, config_of(widened(named("T2")), 6));
    if (grid.coordinate(Axis::pipeline) > 0) return;
    const std::vector<Transfer> sends = r.transfers("pipeline", Operation::send);
    ASSERT_EQ(sends.size(), 6u);
    for (const Transfer& t : sends) EXPECT_GE(overlapped_computations(t, r.work()), 1);
  });
}

// ---- Context-parallel ranks

std::vector<Work> kernels_between(const Recorded& r, const std::string& name, Moment begin, Moment end) {
  std::vector<Work> some;
  for (const Work& k : r.recorder->kernels())
    if (k.name == name && k.begin >= begin && k.end <= end) some.push_back(k);
  return some;
}

// End of the last wait before this transfer began.
Moment end_of_wait_before(const Recorded& r, const Transfer& t) {
  Moment end = 0;
  for (const Transfer& other : r.recorder->transfers())
    if (other.number < t.number) end = std::max(end, other.wait_end);
  return end;
}

// A forward exchanges twice per layer: convolution inputs, then states. No rank waits for the states of another rank
// before it has scanned its own tokens. The k-th scan of every rank begins before the k-th exchange of any rank has
// ended, so ranks scan concurrently.
TEST(trace, context_parallel_ranks_scan_concurrently) {
  std::vector<Layout> layouts;
  for (const int ranks : {2, 4, 8})
    for (const SequenceOrder order : {SequenceOrder::contiguous, SequenceOrder::zigzag})
      layouts.push_back(layout_with_context(1, 1, ranks, 1, order));
  on_each(layouts, [](const Layout& layout, Grid& grid) {
    ModelConfig model = widened(named("T2"));
    model.pattern = "MMMMMMMM";
    EngineConfig config = config_of(model, 1);
    config.seq_length = 24 * layout.ranks();
    const AlignedClock clock = align_clocks(grid.world());
    const Recorded r = recorded_on(layout, config, 1, true);
    Moment forwards_end = 0;
    for (const Work& w : r.work())
      if (std::string_view(w.name) == "forward") forwards_end = std::max(forwards_end, w.end);
    std::vector<double> scans, ends;
    int exchange = 0;
    for (const Transfer& t : r.transfers("context", Operation::all_gather)) {
      if (t.begin > forwards_end || exchange++ % 2 == 0) continue;
      const std::vector<Work> local_kernels = kernels_between(r, "ssd", end_of_wait_before(r, t), t.begin);
      EXPECT_FALSE(local_kernels.empty()) << "states of layer " << exchange / 2 << " are exchanged before the scan";
      scans.push_back(local_kernels.empty() ? 0 : clock.time(local_kernels.front().begin)), ends.push_back(clock.time(std::max(t.end, t.wait_end)));
    }
    EXPECT_EQ(scans.size(), 8u);
    scans.resize(8), ends.resize(8);
    EXPECT_TRUE(r.transfers("context", Operation::send).empty() && r.transfers("context", Operation::shift).empty());
    const std::vector<double> all_scans = grid.world().gather(scans), all_ends = grid.world().gather(ends);
    const double uncertainty = 2 * grid.world().max(clock.difference.uncertainty);
    for (int a = 0; a < layout.ranks(); ++a)
      for (int b = 0; b < layout.ranks(); ++b)
        for (std::size_t k = 0; k < 8; ++k) EXPECT_LE(all_scans[a * 8 + k], all_ends[b * 8 + k] + uncertainty) << "ranks " << a << " and " << b;
  });
}

// Ring attention: keys and values are sent to the next rank while attention to the present ones is computed.
TEST(trace, ring_kv_transfer_overlaps_attention) {
  on_each({layout_with_context(1, 1, 2, 1), layout_with_context(1, 1, 4, 1)}, [](const Layout& layout, Grid&) {
    ModelConfig model = widened(named("T2"));
    model.pattern = "********";
    const Recorded r = recorded_on(layout, config_of(model, 2), 1, true);
    int forwards = 0;
    for (const Work& w : r.work()) {
      if (std::string_view(w.name) != "forward") continue;
      for (const Transfer& t : r.transfers("context", Operation::shift)) {
        if (t.begin < w.begin || t.begin > w.end) continue;
        ++forwards;
        EXPECT_FALSE(kernels_between(r, "attention", t.begin, t.wait_end != 0 ? t.wait_begin : w.end).empty());
      }
    }
    EXPECT_EQ(forwards, 2 * 8 * (layout.ranks() - 1));
  });
}

// ---- Tensor-parallel ranks

// Tensor-parallel ranks reduce the input gradients of a layer while they compute its weight gradients. With sequence
// parallelism, they all-gather the inputs of the branches while they compute the input gradients.
TEST(trace, tensor_parallel_reduction_overlaps_weight_gradients) {
  std::vector<Layout> layouts;
  for (const Layout& full : {layout_of(1, 1, 2), layout_of(2, 1, 4), layout_of(1, 2, 2)})
    for (const Layout& layout : {full, with_sequence(full)}) layouts.push_back(layout);
  on_each(layouts, [](const Layout& layout, Grid&) {
    constexpr int micros = 2;
    const Recorded r = recorded_on(layout, config_of(widened(named("T2")), micros), 1, true);
    const auto hidden = [&](Operation operation) {
      const std::vector<Transfer> all = r.transfers("tensor", operation);
      return std::count_if(all.begin(), all.end(), [&](const Transfer& t) { return kernels_between(r, "gemm", t.begin, t.wait_begin).size() > 1; });
    };
    const Index residuals = 2 * layers_of(layout) * micros;
    EXPECT_EQ(hidden(layout.sequence ? Operation::reduce_scatter : Operation::all_reduce), residuals);
    EXPECT_EQ(hidden(Operation::all_gather), layout.sequence ? residuals : 0);
  });
}

// ---- Files

// Traces steps as a run does. When the files are read, the times of every rank must add up.
TEST(trace, trace_files_cover_all_ranks_and_add_up) {
  const SharedFolder folder;
  on_each({layout_of(2, 2, 2), layout_with_context(2, 1, 2, 1), layout_of(1, 2, 2, {2, 0, 3, 1})}, [&](const Layout& layout, Grid& grid) {
    const std::filesystem::path here = folder / fmt::format("{}{}", layout.text(), layout.permutation.size());
    Trace trace({.on = true, .steps = {2, 3}, .kernels = true}, here);
    EngineConfig config = config_of(widened(named("T2")), 2);
    config.seq_length = 2 * seq_length;
    Rig<double> rig(config, grid);
    for (Index step = 1; step <= 3; ++step) {
      if (trace.takes(step)) grid.record(&trace.begin(grid));
      {
        const Recorder::Span span(grid.recorder(), step_span);
        rig.engine.train([&](int micro) { return micro_batch(micro, 1, 2 * seq_length, 62); }, 2, step, 1e-3);
      }
      grid.record(nullptr);
      if (trace.takes(step)) trace.write(step, grid);
    }
    const std::vector<TraceFile> files = read_traces(here);
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(int(files[0].ranks.size()), layout.ranks());
    for (const auto& [number, rank] : files[0].ranks) {
      EXPECT_EQ(files[1].ranks.at(number).steps.size(), 1u);
      EXPECT_EQ(files[1].ranks.at(number).tasks.size(), rank.tasks.size()) << "two steps have different task counts";
    }
    for (const RankSummary& s : summary_of(files)) {
      double sum = s.busy + s.bubble + s.rest;
      for (const auto& [name, seconds] : s.exposed) sum += seconds;
      EXPECT_NEAR(sum, s.step, 1e-9);
      EXPECT_TRUE(s.rest >= -1e-9 && s.busy > 0);
      EXPECT_EQ(s.forward.size(), 1u);
      EXPECT_EQ(s.stage, layout.coordinate(layout.position_of(int(s.rank)), Axis::pipeline));
      EXPECT_EQ(s.bubble > 0, layout.size(Axis::pipeline) > 1);
    }
  });
}

}  // namespace
}  // namespace gyr::testing::trace_suite
