// SPDX-License-Identifier: BSD-3-Clause
// `make planner`: compares predicted and measured step times of random decks on this machine. Each deck is profiled as
// a user would do it (gyrfalcon profile DECK --out), with two layers of each type. Links are measured as in gyrfalcon
// probe. Other load on the machine disturbs both, at different times. The last column, the quartiles, shows the spread
// of the measured steps.
//   mpiexec -n RANKS planner_machine [decks] [seed]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "kernels/comm/mpi/transport.hpp"
#include "src/base/stopwatch.hpp"
#include "src/base/table.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/planner/machine/measured_kernels.hpp"
#include "src/planner/machine/probe.hpp"
#include "src/planner/predict/prediction.hpp"
#include "src/train/engine_config.hpp"

namespace gyr::testing {
namespace {

struct Axes4 {
  int data, pipeline, context, tensor;
};

// A random deck whose step takes about 0.1 to 2 seconds.
RunConfig random_run(std::mt19937& random, int ranks) {
  const auto between = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  Axes4 axes{1, 1, 1, 1};
  switch (between(0, 3)) {
    case 0: axes.data = ranks; break;
    case 1: axes.pipeline = ranks; break;
    case 2: axes.context = ranks; break;
    default: axes.tensor = ranks; break;
  }
  static const char* const patterns[] = {"P x 6", "\"*- x 6\"", "M-M-*-M-M-", "\"M x 8\""};
  static const char* const policies[] = {"none", "selective", "full"};
  const int hidden = 128 * between(2, 4), heads = hidden / 64, micros = between(1, 6);
  const std::string text = fmt::format(
      "model:\n  pattern: {}\n  vocab_size: {}\n  hidden_size: {}\n  attention: {{num_heads: {}, num_kv_heads: {}, head_dim: 64}}\n"
      "  mamba: {{num_heads: {}, head_dim: 64, state_size: 64}}\n  mlp: {{intermediate_size: {}}}\n"
      "train: {{global_batch_size: {}, micro_batch_size: 1, seq_length: {}, precision: {}}}\n"
      "parallel: {{data: {}, pipeline: {}, context: {}, tensor: {}}}\nactivation: {{recompute: {}}}\n",
      patterns[between(0, 3)], 1024 * between(2, 16), hidden, heads, heads, heads, 2 * hidden, micros * axes.data, 256 * between(1, 4),
      between(0, 1) ? "fp32" : "bf16", axes.data, axes.pipeline, axes.context, axes.tensor, policies[between(0, 2)]);
  Deck deck = Deck::parse(text, "random");
  RunConfig run = read_run_config(deck);
  deck.finish();
  return run;
}

struct Measured {
  double median, first_quarter, third_quarter;
};

Measured measure(const EngineConfig& config, const Layout& layout) {
  Grid grid(layout, MPI_COMM_WORLD, wait_policy_of(MPI_COMM_WORLD));
  Timers timers(engine_timer_names());
  const Capacity capacity = predicted_capacity(config, layout, grid.position());
  Engine engine(config, grid, &capacity, timers);
  engine.initialise(1);
  const auto source = [&](int micro) { return random_batch(config, unsigned(micro + 1000 * grid.coordinate(Axis::data))); };
  engine.train(source, config.micros, 1, 1e-4);
  std::vector<double> seconds;
  double all = 0;
  for (int step = 2; step < 60 && (step < 9 || grid.world().max(all) < 4); ++step) {
    grid.world().barrier();
    double one = 0;
    {
      const Stopwatch watch(one);
      engine.train(source, config.micros, step, 1e-4);
    }
    seconds.push_back(grid.world().max(one)), all += one;
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds[seconds.size() / 4], seconds[3 * seconds.size() / 4]};
}

std::string kind_of(const RunConfig& run, const Layout& layout) {
  return fmt::format("{} h {} V {} T {} {} {}", run.model.pattern, run.model.hidden_size, run.model.vocab_size, run.train.seq_length,
                     run.train.precision, layout.text());
}

void compare(int decks, unsigned seed) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Cluster cluster = probe_machine(MPI_COMM_WORLD).cluster;
  std::mt19937 random(seed);
  Table table({{"deck", false, 80}, {"micros", true}, {"measured s", true}, {"predicted s", true}, {"error %", true}, {"quartiles %"}});
  std::vector<double> errors;
  for (int i = 0; i < decks; ++i) {
    const RunConfig run = random_run(random, ranks);
    const Layout layout = layout_of(run, ranks);
    const EngineConfig config = engine_config(run, layout);
    EngineConfig small = config;
    small.model = with_each_layer_twice(run.model, run.parallel.stages());
    small.micros = std::min(config.micros, 2);
    RunConfig small_run = run;
    small_run.model = small.model;
    const Profile profile = measured_kernels(small, layout_of(small_run, ranks), MPI_COMM_WORLD);
    const Prediction p = predict(StagePlans(config, layout), config, layout, cluster, &profile);
    const Measured m = measure(config, layout);
    errors.push_back(std::abs(p.seconds / m.median - 1));
    table.row({kind_of(run, layout), fmt::format("{}", config.micros), fmt::format("{:.4f}", m.median), fmt::format("{:.4f}", p.seconds),
               fmt::format("{:+.1f}", 100 * (p.seconds / m.median - 1)),
               fmt::format("{:+.1f} {:+.1f}", 100 * (m.first_quarter / m.median - 1), 100 * (m.third_quarter / m.median - 1))});
  }
  if (rank != 0) return;
  std::sort(errors.begin(), errors.end());
  std::printf("%d random decks (seed %u) on %d ranks of this machine, predicted and measured\n%s median error %.1f %%, worst %.1f %%\n%s", decks,
              seed, ranks, table.str().c_str(), 100 * errors[errors.size() / 2], 100 * errors.back(), to_yaml(cluster, "the machine").c_str());
}

}  // namespace
}  // namespace gyr::testing

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const Kokkos::ScopeGuard kokkos;
    gyr::testing::compare(argc > 1 ? std::atoi(argv[1]) : 10, argc > 2 ? unsigned(std::atoi(argv[2])) : 1);
  }
  MPI_Finalize();
}
