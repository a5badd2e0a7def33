// SPDX-License-Identifier: BSD-3-Clause
// A rank with several threads computes bitwise the same values as a rank with one thread.
#include "kernels/base/threads.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/kokkos/threads.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"

namespace gyr::testing::threads_suite {
namespace {

// Model so large that GEMMs, attention, scan and row kernels are divided among threads.
ModelConfig wide() {
  ModelConfig m = named("T2").model;  // two groups of B and C
  m.vocab_size = 512, m.hidden_size = 256;
  m.attention.head_dim = 32;
  m.mamba.num_heads = 16, m.mamba.head_dim = 16, m.mamba.state_size = 16, m.mamba.chunk_size = 64;
  m.mlp.intermediate_size = 512;
  return m;
}

// Writes loss, gradient norm and gradient hashes of two training steps. The second step uses the weights that the first
// has updated.
template <class T>
void put_values(std::ostream& out) {
  const ModelConfig m = wide();
  EngineConfig config;
  config.model = m, config.micro_batch_size = 2, config.seq_length = 150;
  Rig<T> rig(config, single_rank_grid(m.layers()));
  rig.engine.initialise(7);
  for (int step = 1; step <= 2; ++step) {
    const StepResult r = rig.engine.train([&](int) { return micro_batch(2 * step, 2, 150, m.vocab_size); }, 1, step, 1e-2);
    out << std::hexfloat << r.loss << " " << r.gradient_norm << "\n";
  }
  for (const auto& [name, gradient] : gathered_gradients(rig.engine)) {
    std::uint64_t sum = 0;
    for (const double g : gradient) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &g, sizeof bits);
      sum = (sum ^ bits) * 0x100000001b3;
    }
    out << name << " " << sum << "\n";
  }
}

// Values that this test writes in a process with `threads` threads.
std::string data_of(int threads, const Folder& folder) {
  const auto file = folder / ("of_" + std::to_string(threads));
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = fmt::format(
      "KOKKOS_NUM_THREADS={0} OMP_NUM_THREADS={0} GYR_NUMBERS='{1}' '{2}' --gtest_filter=threads.thread_count_changes_no_bit > '{1}.log' 2>&1",
      threads, file.string(), self);
  EXPECT_EQ(std::system(command.c_str()), 0) << contents(file.string() + ".log");
  return contents(file);
}

TEST(threads, thread_count_changes_no_bit) {
  if (!threaded) GTEST_SKIP() << "kernels of this build run in one thread";
  if (const char* file = std::getenv("GYR_NUMBERS")) {
    std::ofstream out(file);
    EXPECT_EQ(rank_threads(), std::atoi(std::getenv("OMP_NUM_THREADS")));
    put_values<double>(out), put_values<float>(out), put_values<bf16>(out);
    return;
  }
  const Folder folder;
  const std::string one = data_of(1, folder);
  EXPECT_GT(one.size(), 1000u);
  for (const int threads : {2, 3, 3}) EXPECT_EQ(data_of(threads, folder), one) << threads << " threads";
}

}  // namespace
}  // namespace gyr::testing::threads_suite
