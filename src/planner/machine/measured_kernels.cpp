// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/machine/measured_kernels.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "kernels/comm/mpi/transport.hpp"
#include "src/base/stopwatch.hpp"
#include "src/engine/dry_run/plan.hpp"

namespace gyr {

namespace {

constexpr double long_enough = 2;  // minimum seconds of timed steps
constexpr int least_trials = 2, most_trials = 50;

// Kernel name, flops, bytes, calls and seconds of a launch shape as doubles, to gather them over the ranks.
struct Packed {
  static constexpr std::size_t letters = 32, size = letters + 4;

  static void pack(const LaunchShape& shape, const LaunchCount& count, double* to) {
    ensure(shape.kernel.size() <= letters, "the name of kernel {} is longer than {} letters", shape.kernel, letters);
    std::copy(shape.kernel.begin(), shape.kernel.end(), to);
    to[letters] = shape.flops, to[letters + 1] = shape.bytes, to[letters + 2] = double(count.calls), to[letters + 3] = count.seconds;
  }
  static std::string kernel(const double* from) {
    std::string name;
    for (std::size_t c = 0; c < letters && from[c] != 0; ++c) name += char(from[c]);
    return name;
  }
};

using Key = std::tuple<std::string, double, double>;  // kernel name, flops, bytes

// Sum of calls and seconds over all ranks. Ranks of different pipeline stages may launch different kernels.
std::map<Key, LaunchCount> of_all_ranks(const LaunchCounts& mine, Communicator& world) {
  std::vector<double> packed(std::size_t(world.max(double(mine.size()))) * Packed::size);
  std::size_t at = 0;
  for (const auto& [shape, count] : mine) Packed::pack(shape, count, packed.data() + Packed::size * at++);
  std::map<Key, LaunchCount> all;
  const std::vector<double> ranks = world.gather(packed);
  for (const double* from = ranks.data(); from != ranks.data() + ranks.size(); from += Packed::size) {
    const double calls = from[Packed::letters + 2];
    if (calls == 0) continue;
    LaunchCount& sum = all[{Packed::kernel(from), from[Packed::letters], from[Packed::letters + 1]}];
    sum.calls += Index(calls), sum.seconds += from[Packed::letters + 3];
  }
  return all;
}

}  // namespace

MicroBatch random_batch(const EngineConfig& config, unsigned seed) {
  MicroBatch batch{config.micro_batch_size, config.seq_length, {}, {}};
  std::mt19937 random(seed);
  std::uniform_int_distribution<Token> token(0, Token(config.model.vocab_size - 1));
  for (Index i = 0; i < batch.batch * batch.seq_length; ++i) batch.tokens.push_back(token(random)), batch.labels.push_back(token(random));
  return batch;
}

ModelConfig with_each_layer_twice(ModelConfig model, int stages) {
  std::string each;
  for (const char symbol : model.pattern)
    if (each.find(symbol) == std::string::npos) each += symbol;
  model.pattern = each;
  while (int(model.pattern.size()) < std::max(stages, 2 * int(each.size()))) model.pattern += each;
  return model;
}

Profile measured_kernels(const EngineConfig& config, const Layout& layout, MPI_Comm world) {
  Grid grid(layout, world, wait_policy_of(world));
  Timers timers(engine_timer_names());
  const Capacity capacity = predicted_capacity(config, layout, grid.position());
  Engine engine(config, grid, &capacity, timers);
  engine.initialise(1);
  const auto source = [&](int micro) { return random_batch(config, unsigned(micro + 1000 * grid.coordinate(Axis::data))); };
  constexpr double lr = 1e-4;
  engine.train(source, config.micros, 1, lr);  // warm-up: compiles GEMMs and touches all memory
  engine.device().times_launches = true;
  double seconds = 0;
  for (int step = 0; step < most_trials && (step < least_trials || grid.world().max(seconds) < long_enough); ++step) {
    const Stopwatch watch(seconds);
    engine.train(source, config.micros, step + 2, lr);
  }
  Profile profile;
  for (const auto& [key, count] : of_all_ranks(engine.device().launch_counts, grid.world()))
    profile.add({std::get<0>(key), std::string(name_of(config.precision)), std::get<1>(key), std::get<2>(key), count.seconds / double(count.calls)});
  return profile;
}

}  // namespace gyr
