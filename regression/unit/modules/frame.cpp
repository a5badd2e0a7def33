// SPDX-License-Identifier: BSD-3-Clause
#include "modules/pass/frame.hpp"

#include <random>

#include "kernels/base/error.hpp"
#include "regression/support/testing.hpp"

namespace gyr::frame_suite {
namespace {

constexpr Key<Tensor2<float>> weights{"weights"}, scores{"scores"};
constexpr Key<Tensor1<double>> sums{"sums"};
constexpr Key<Tensor2<float>> early{"early", RecomputeCost::sum, Phase::input_gradients};
constexpr Key<Tensor1<double>> early_sums{"early sums", RecomputeCost::sum, Phase::input_gradients};
constexpr Key<Tensor1<const double>> borrowed{"borrowed"};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const std::function<void()>& f, const std::vector<std::string>& parts) {
  const std::string error = error_of(f);
  EXPECT_NE(error, "");
  for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << " does not contain " << part;
}

TEST(frame, returns_stored_tensors_in_any_order) {
  Arena arena(Memory::activations, 1 << 16);
  Frame frame(arena, "layer");
  const auto a = frame.put(weights, 3, 5);
  const auto b = frame.put(scores, 2, 2);
  const auto c = frame.put(sums, 7);
  frame.refer(borrowed, c);
  EXPECT_EQ(frame.get(sums).data(), c.data());
  EXPECT_EQ(frame.get(weights).data(), a.data());
  EXPECT_EQ(frame.get(borrowed).data(), c.data());
  EXPECT_EQ(frame.get(scores).data(), b.data());
  EXPECT_EQ(frame.get(weights).extent(0), 3u);
  EXPECT_EQ(frame.get(weights).extent(1), 5u);
  EXPECT_EQ(frame.get(borrowed).extent(0), 7u);
  EXPECT_EQ(frame.get(sums).data(), c.data());  // a tensor can be retrieved any number of times
}

TEST(frame, missing_or_duplicate_keys_are_refused_by_name) {
  Arena arena(Memory::activations, 1 << 16);
  Frame frame(arena, "model.layers.3");
  expect_refused([&] { frame.get(weights); }, {"model.layers.3", "weights", "not put"});
  frame.put(weights, 1, 1);
  expect_refused([&] { frame.put(weights, 1, 1); }, {"model.layers.3", "weights", "twice"});
  expect_refused([&] { frame.nested(1, "branch").get(weights); }, {"model.layers.3", "branch 1", "weights", "not put"});
}

// Keys are distinguished by their address, not by their name.
TEST(frame, keys_with_equal_names_are_distinct) {
  static constexpr Key<Tensor1<double>> one{"x"}, other{"x"};
  Arena arena(Memory::activations, 1 << 16);
  Frame frame(arena);
  const auto a = frame.put(one, 3), b = frame.put(other, 3);
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(frame.get(other).data(), b.data());
  EXPECT_EQ(frame.get(one).data(), a.data());
}

TEST(frame, released_tensors_are_refused_by_name) {
  Arena arena(Memory::activations, 1 << 16);
  Frame frame(arena, "layer");
  frame.put(early, 2, 2);
  frame.put(weights, 2, 2);
  frame.nested(0, "branch").put(early_sums, 4);
  EXPECT_NO_THROW(frame.get(early));
  frame.release(Phase::input_gradients);
  expect_refused([&] { frame.get(early); }, {"layer", "early", "released"});
  expect_refused([&] { frame.nested(0).get(early_sums); }, {"layer", "branch 0", "early sums", "released"});
  EXPECT_NO_THROW(frame.get(weights));  // kept until the weight gradients are computed
  frame.release(Phase::weight_gradients);
  expect_refused([&] { frame.get(weights); }, {"weights", "released"});
}

// On a tape, later tensors reuse the memory of released ones. A tensor may also be released by its address.
TEST(frame, tape_reuses_memory_of_released_tensors) {
  const auto micro_batch = [](Tape& tape, bool dry_run) {
    Arena arena = Arena::make(Memory::activations, 0, dry_run);
    arena.follow(&tape);
    Frame frame(arena, "layer");
    std::vector<const void*> places;
    const auto first = frame.nested(0, "branch").put(sums, 100);
    frame.put(early, 10, 10);
    frame.refer(borrowed, first);
    tape.end_task();
    frame.release(first.data());
    expect_refused([&] { frame.nested(0).get(sums); }, {"layer", "branch 0", "sums", "released"});
    const auto second = frame.nested(1, "branch").put(sums, 100);
    EXPECT_TRUE(dry_run || second.data() == first.data());
    frame.release(Phase::input_gradients);
    expect_refused([&] { frame.get(early); }, {"layer", "early", "released"});
    frame.nested(1).put(weights, 1, 1);
    tape.end_task();
    frame.clear();
    EXPECT_TRUE(frame.empty());
    tape.rewind();
  };
  const auto script = std::make_shared<Script>();
  Tape rehearsal(script);
  micro_batch(rehearsal, true);
  script->plan = plan_slot(script->blocks, true);
  EXPECT_EQ(script->plan.slot, 1024 + 512);
  Arena memory(Memory::activations, script->plan.slot);
  Tape replay(script, memory.begin(), nullptr);
  micro_batch(replay, false);
  micro_batch(replay, false);
}

// Clearing a frame returns its memory and that of its nested frames, but keeps older tensors. The next micro-batch gets
// the same addresses.
TEST(frame, clear_returns_memory_to_the_arena) {
  std::mt19937_64 random(5);
  Arena arena(Memory::activations, 1 << 20);
  Frame frame(arena);
  frame.put(sums, 100);
  const Index below = arena.used();
  std::vector<const void*> first;
  for (int round = 0; round < 3; ++round) {
    std::mt19937_64 same = random;
    std::vector<const void*> places;
    for (int layer = 0; layer < 4; ++layer)
      for (int branch = 0; branch < 3; ++branch) {
        Frame& inner = frame.nested(layer, "layer").nested(branch, "branch");
        places.push_back(inner.put(weights, 1 + Index(same() % 20), 3).data());
        if (same() % 2) places.push_back(inner.put(scores, 5, 1 + Index(same() % 9)).data());
      }
    if (round == 0) first = places;
    EXPECT_EQ(places, first);
    for (int layer = 3; layer >= 0; --layer) frame.nested(layer).clear();
    EXPECT_EQ(arena.used(), below);
    EXPECT_NO_THROW(frame.get(sums));
    expect_refused([&] { frame.nested(2).nested(1).get(weights); }, {"not put"});
  }
  frame.clear();
  EXPECT_EQ(arena.used(), 0);
  EXPECT_TRUE(frame.empty());
}

}  // namespace
}  // namespace gyr::frame_suite
