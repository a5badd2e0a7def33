// SPDX-License-Identifier: BSD-3-Clause
// Checks that the emulated machine finds the typical mistakes of kernels. Each mistake is made on purpose.
#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/emulation/memory.hpp"
#include "kernels/cuda/machine/compiled_gpus.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/rmsnorm.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::emulation_suite {

using namespace gyr::cuda;

namespace {

// Sets the machine for a test, and restores it at the end of the scope.
class With {
 public:
  With(Order order, bool checked, std::uint64_t seed = 1) : before_(Machine::instance()) {
    Machine& machine = Machine::instance();
    machine.order = order, machine.seed = seed, machine.checked = checked;
  }
  ~With() { Machine::instance() = before_; }

 private:
  Machine before_;
};

constexpr int threads = 64;

template <class... P, class... A>
std::string complaint(const Grid& grid, void (*kernel)(P...), const A&... arguments) {
  Device dev(false, 1 << 20);
  try {
    launch(dev, "wrong", grid, kernel, arguments...);
  } catch (const Violation& v) {
    return v.what();
  }
  return "";
}

void expect_found(const std::string& what, const std::string& complaint) {
  EXPECT_NE(complaint.find(what), std::string::npos) << "wanted: " << what << "\n   found: " << complaint;
}

enum class Mistake { none, no_barrier, no_barrier_before_writing, unwritten, outside_shared, divergent_shuffle, missing_threads, early_exit };

// Every thread writes a value and reads that of a neighbour in another warp, twice.
GYR_KERNEL neighbours(Mistake mistake, Global<const float> x, Global<float> y) {
  const Shared<float> storage;
  const int t = thread_index(), other = (t + warp_size) % threads;
  if (mistake == Mistake::early_exit && t == 3) return;
  if (mistake != Mistake::unwritten || t != 5) storage.store(t, 0);
  sync_block();
  for (int round = 0; round < 2; ++round) {
    if (mistake != Mistake::unwritten || t != 5) storage.store(t, x.load(t) + float(round));
    if (mistake == Mistake::missing_threads && t < warp_size) return;
    if (mistake != Mistake::no_barrier) sync_block();
    float v = storage.load(mistake == Mistake::outside_shared ? other + threads : other);
    if (mistake == Mistake::divergent_shuffle && lane() < 16) v = shuffle_xor(v, 1);
    else v = shuffle_xor(v, 2);
    y.store(t, v);
    if (mistake != Mistake::no_barrier_before_writing) sync_block();
  }
}

std::string complaint_of(Mistake mistake) {
  Workbench bench;
  const auto x = bench.normal<float>(threads), y = bench.zeros<float>(threads);
  return complaint({1, threads, threads * int(sizeof(float))}, neighbours, mistake, Tensor1<const float>(x), y);
}

// Kernels with races between blocks. Only one thread per block takes part, so that there is no race inside a block.
GYR_KERNEL one_for_all(Global<float> x) {
  if (thread_index() == 0) x.store(0, float(block_index()));
}
GYR_KERNEL shifted(Global<const float> x, Global<float> y) {
  if (thread_index() == 0) y.store(block_index(), x.load(block_index() + 1));
}
GYR_KERNEL too_far(Global<float> x) { x.store(x.columns(), 1); }
GYR_KERNEL into_the_gap(Global<float> x) { x.store(0, x.columns(), 1); }

// Accesses of the first lanes of warps, in `story_bytes` bytes of memory; phases are separated by a barrier of the
// block.
struct Step {
  int phase, warp;
  Index at;
  int bytes;
  Touch touch;
};
constexpr int story_bytes = 64, phases = 2;
using Story = std::vector<Step>;
GYR_KERNEL follow(const Story* story, char* global) {
  cuda::Block& block = cuda::Block::current();
  for (int at = 0; !global && at < story_bytes; at += 16)
    if (thread_index() == 0) block.watch_shared(block.shared() + at, 16, Touch::write, Site::current());
  for (int phase = 0; phase < phases; ++phase) {
    sync_block();
    for (const Step& s : *story) {
      if (s.phase != phase || thread_index() != s.warp * warp_size) continue;
      if (global) block.watch_global(global + s.at, s.bytes, s.touch, Site::current());
      else block.watch_shared(block.shared() + s.at, s.bytes, s.touch, Site::current());
    }
  }
}
Story drawn_story(std::mt19937_64& random) {
  Story story(3 + random() % 5);
  for (Step& s : story) {
    s.bytes = 1 << random() % 6;
    s.at = Index(random() % (story_bytes / std::uint64_t(s.bytes))) * s.bytes;
    s.phase = int(random() % phases), s.warp = int(random() % (threads / warp_size)), s.touch = random() % 2 ? Touch::write : Touch::read;
  }
  return story;
}
bool race_without_a_barrier(const Step& a, const Step& b) {
  return a.phase == b.phase && a.warp != b.warp && (a.touch == Touch::write || b.touch == Touch::write) && a.at < b.at + b.bytes &&
         b.at < a.at + a.bytes;
}

}  // namespace

TEST(emulation, block_mistakes_are_found_in_every_order) {
  for (const auto order : {Order::forward, Order::backward, Order::random})
    for (const std::uint64_t seed : {1, 2, 3}) {
      const With machine(order, true, seed);
      EXPECT_EQ(complaint_of(Mistake::none), "");
      expect_found("without a barrier between", complaint_of(Mistake::no_barrier));
      expect_found("without a barrier between", complaint_of(Mistake::no_barrier_before_writing));
      expect_found("was never written", complaint_of(Mistake::unwritten));
      expect_found("of shared memory, but a block has only 256", complaint_of(Mistake::outside_shared));
    }
}

TEST(emulation, divergent_warps_are_found_on_unchecked_machine) {
  for (const auto order : {Order::forward, Order::backward, Order::random}) {
    const With machine(order, false);
    expect_found("a divergent warp", complaint_of(Mistake::divergent_shuffle));
    expect_found("some lanes have exited", complaint_of(Mistake::early_exit));
  }
}

TEST(emulation, races_between_blocks_are_found) {
  const With machine(Order::random, true);
  Workbench bench;
  const auto x = bench.normal<float>(256);
  expect_found("a race: this thread writes", complaint({4, threads}, one_for_all, x));
  expect_found("a race", complaint({4, threads}, shifted, Tensor1<const float>(x), x));
  EXPECT_EQ(complaint({4, threads}, shifted, Tensor1<const float>(x), bench.zeros<float>(256)), "");
}

TEST(emulation, race_is_found_for_overlaps_of_any_size) {
  std::mt19937_64 random(seed_of_run());
  alignas(story_bytes) char global[story_bytes] = {};
  int races = 0;
  for (int i = 0; i < 400; ++i) {
    const With machine(Order::random, true, random());
    const Story story = drawn_story(random);
    bool race = false;
    for (const Step& a : story)
      for (const Step& b : story) race = race || race_without_a_barrier(a, b);
    races += race;
    for (char* const memory : {static_cast<char*>(nullptr), global})  // each block has its own shared memory
      EXPECT_EQ(complaint({memory ? 1 : 3, threads, story_bytes}, follow, &story, memory).find("without a barrier between") != std::string::npos,
                race)
          << "story " << i << (memory ? " in global memory" : " in shared memory");
  }
  EXPECT_GT(races, 60);
  EXPECT_LT(races, 300);
}

// Also memory that was allocated, written and freed before, of several sizes.
TEST(emulation, unwritten_device_memory_is_nan) {
  const With machine(Order::forward, true);
  for (const std::size_t bytes : {std::size_t(100), std::size_t(4) << 20, (std::size_t(9) << 20) + 100})
    for (int time = 0; time < 2; ++time) {
      void* const p = take_device_memory(bytes);
      ASSERT_TRUE(p);
      const std::span<char> memory(reinterpret_cast<char*>(resolved(static_cast<char*>(p))), bytes);
      EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](char c) { return c == char(0xff); })) << bytes << " bytes, time " << time;
      std::memset(memory.data(), 0, bytes);
      return_device_memory(p);
    }
}

TEST(emulation, accesses_outside_tensor_are_found_on_unchecked_machine) {
  Workbench bench;
  const auto x = bench.zeros<float>(64);
  expect_found("outside the tensor", complaint({1, warp_size}, too_far, x));
  expect_found("outside the tensor", complaint({1, warp_size}, into_the_gap, Matrix<float>(x.data(), 4, 15, 16)));
  EXPECT_EQ(x(63), 0);
}

// A barrier does not wait for threads that have exited, as on the hardware.
TEST(emulation, barriers_do_not_wait_for_exited_threads) {
  const With machine(Order::forward, false);
  EXPECT_EQ(complaint_of(Mistake::missing_threads), "");
}

TEST(emulation, violation_names_kernel_line_block_and_thread) {
  const With machine(Order::forward, true);
  const std::string text = complaint_of(Mistake::no_barrier);
  for (const char* part : {"wrong: ", "emulation.cpp line ", "block 0", "thread "}) expect_found(part, text);
}

// Verifies that the kernel test suites run the CUDA kernels here.
TEST(emulation, operations_run_cuda_kernels_under_emulation) {
  const With machine(Order::forward, false);
  Workbench bench;
  const auto x = bench.normal<float>(3, 40), y = bench.zeros<float>(3, 40);
  const auto weight = bench.normal<float>(40), rstd = bench.zeros<float>(3);
  const Index before = grids_run();
  rmsnorm<float>(bench.dev, x, weight, 1e-6, y, rstd);
  EXPECT_EQ(grids_run(), before + 1);
}

TEST(compiled_gpus, architecture_list_selects_supported_gpus) {
  for (const int known : {80, 86, 89, 90, 100, 103, 120}) EXPECT_TRUE(has_code_for("80 90a 100+", known)) << known;
  for (const int unknown : {75, 91}) EXPECT_FALSE(has_code_for("80 90a 100+", unknown)) << unknown;
  for (const int unknown : {80, 89, 91, 100}) EXPECT_FALSE(has_code_for("90a", unknown)) << unknown;
  EXPECT_TRUE(has_code_for("90a", 90));
  EXPECT_TRUE(has_code_for("100", 103));
  EXPECT_FALSE(has_code_for("100", 120));
}

}  // namespace gyr::testing::emulation_suite
