// SPDX-License-Identifier: BSD-3-Clause
// A dry run records the computation that overlaps each transfer. Recorded events are compared with a plain list, and
// the overlap of tensor-parallel transfers with the FLOPs of the layer shapes.
#include "kernels/device/overlapped_transfers.hpp"

#include "modules/cost/flops.hpp"
#include "regression/planner/random_run.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/engine/dry_run/dry_step.hpp"

namespace gyr::testing::overlapped_transfers_suite {
namespace {

// Random launches and transfers, compared with a plain list of the transfers in flight. The computation that overlaps
// transfers is never counted twice.
TEST(overlapped_transfers, transfers_in_flight_share_the_launches_between_them) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 200; ++i) {
    OverlappedTransfers hidden;
    struct Begun {
      int number;
      Index times, bytes;
      double flops = 0;
    };
    std::vector<Begun> begun;
    std::map<Index, double> expected;  // overlapped FLOPs by transfer size in bytes, which is unique per transfer
    double launched = 0, counted = 0;
    for (int event = 0; event < 40; ++event) {
      if (const int what = dice.between(0, 2); what == 0) {
        const Index times = dice.between(1, 3);
        begun.push_back({hidden.begin(nullptr, Operation::all_reduce, event + 1, times), times, event + 1});
      } else if (what == 1) {
        const double flops = dice.between(1, 3);
        hidden.launched({"product", flops, 1}, 6);
        for (Begun& b : begun) b.flops += 6 * flops / double(begun.size());
        launched += 6 * flops;
      } else if (!begun.empty()) {
        const std::size_t which = std::size_t(dice.between(0, int(begun.size()) - 1));
        const Begun b = begun[which];
        hidden.awaited(b.number);
        begun.erase(begun.begin() + std::ptrdiff_t(which));
        if (b.flops > 0) expected[b.bytes] = b.flops / double(b.times);
      }
    }
    std::map<Index, double> seen;
    for (const OverlappedTransfer& t : hidden.take())
      for (const auto& [shape, calls] : t.overlapped) seen[t.bytes] += shape.flops * calls, counted += shape.flops * calls * double(t.times);
    ASSERT_EQ(seen.size(), expected.size());
    for (const auto& [bytes, flops] : expected) EXPECT_NEAR(seen[bytes], flops, 1e-12 * flops);
    EXPECT_LE(counted, launched * (1 + 1e-12));
    for (const Begun& b : begun) hidden.awaited(b.number);
    EXPECT_TRUE(hidden.take().empty()) << "take() forgets transfers that are still in flight";
  }
}

// A small random model on 1, 2 or 4 tensor-parallel ranks, which shard every layer evenly.
Drawn shared(Dice& dice) {
  const int tensor = dice.one_of<int>({1, 2, 4}), width = dice.between(1, 3);
  std::string pattern;
  for (int layers = dice.between(1, 5); layers > 0; --layers) pattern += dice.one_of<char>({'P', '*', 'M', '-'});
  const std::string text = fmt::format(
      "model:\n  pattern: \"{}\"\n  vocab_size: 64\n  hidden_size: {}\n  attention: {{num_heads: 8, num_kv_heads: 4, head_dim: 4}}\n"
      "  mamba: {{num_heads: 8, num_groups: 4, head_dim: 4, state_size: 4, chunk_size: 4}}\n  mlp: {{intermediate_size: {}, gated: {}}}\n"
      "train: {{global_batch_size: 6, micro_batch_size: {}, seq_length: {}}}\nparallel: {{tensor: {}, sequence: {}}}\n",
      pattern, 16 * width, 16 * dice.between(1, 3), dice.coin(), dice.one_of<int>({1, 2}), 8 * dice.between(1, 3), tensor, tensor > 1 && dice.coin());
  Deck deck = Deck::parse(text, "drawn");
  Drawn s{read_run_config(deck), {}, {}};
  s.layout = layout_of(s.run, tensor);
  s.config = engine_config(s.run, s.layout);
  return s;
}

double overlapped_gemm_flops(const OverlappedTransfer& transfer) {
  double flops = 0;
  for (const auto& [shape, calls] : transfer.overlapped)
    if (shape.kernel == "gemm") flops += shape.flops * double(calls);
  return flops;
}

// In backward, the reduction of input gradients overlaps the weight-gradient GEMMs. With sequence parallelism, the
// all-gather overlaps the input-gradient GEMMs. Each of the two has as many FLOPs as the forward projections.
TEST(overlapped_transfers, tensor_parallel_transfers_overlap_weight_and_input_gradients) {
  Dice dice(seed_of_run());
  int seen = 0;
  for (int i = 0; i < 40; ++i) {
    const Drawn s = shared(dice);
    const int ranks = s.layout.ranks();
    DryStep step(s.config, s.layout, dice.between(0, ranks - 1));
    double gemms = 0;
    for (Index layer = 0; layer < s.config.model.layers(); ++layer) gemms += layer_flops(s.config.model, layer, s.config.seq_length).gemms;
    gemms *= double(s.config.micro_batch_size * s.config.seq_length) / ranks;
    const Program program = compile(s.config.schedule, pipeline_shape(s.layout, s.config.micros), 0, step.engine().buckets());
    const TaskCounts counts = step.engine().take_task_counts();
    std::map<int, double> sums, gathers;  // FLOPs overlapped with reductions and with all-gathers, by micro-batch
    for (std::size_t i = 0; i < counts.of_task.size(); ++i) {
      const Task& task = program.tasks[i];
      for (const auto& [communicator, t] : counts.counts[std::size_t(counts.of_task[i])].hidden) {
        EXPECT_EQ(task.op, Op::backward);
        (t.operation == Operation::all_gather ? gathers : sums)[task.micro] += double(t.times) * overlapped_gemm_flops(t);
      }
    }
    const double overlapped_gathers = s.run.parallel.sequence ? gemms : 0;
    for (int micro = 0; micro < s.config.micros && ranks > 1; ++micro) {
      EXPECT_NEAR(sums[micro], gemms, 1e-9 * gemms) << s.config.model.pattern << " on " << ranks;
      EXPECT_NEAR(gathers[micro], overlapped_gathers, 1e-9 * gemms) << s.config.model.pattern << " on " << ranks;
    }
    EXPECT_TRUE(ranks > 1 || (sums.empty() && gathers.empty()));
    seen += ranks > 1;
  }
  EXPECT_GT(seen, 20);
}

}  // namespace
}  // namespace gyr::testing::overlapped_transfers_suite
