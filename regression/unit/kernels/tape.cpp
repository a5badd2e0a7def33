// SPDX-License-Identifier: BSD-3-Clause
// Tapes: recorded memory plans. Replayed allocations get their planned places and never overlap live ones. A deviation
// from the recording is refused by name. Plans waste almost no memory.
#include "kernels/device/tape.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>

#include "kernels/base/poison.hpp"
#include "kernels/device/arena.hpp"
#include "regression/support/testing.hpp"
#include "src/base/precision.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/train/engine_config.hpp"

namespace gyr::tape_suite {
namespace {

// Allocations of a small micro-batch in two tasks. The fields are variations of them.
struct Micro {
  Index kept = 1000, work = 700;
  const char* name = "kept";
  bool more = false, fewer = false, swapped = false;

  void operator()(Tape& tape, bool dry_run) const {
    Arena activations = Arena::make(Memory::activations, 0, dry_run), scratch = Arena::make(Memory::scratch, 0, dry_run);
    activations.follow(&tape), scratch.follow(&tape);
    void* const a = activations.named(name).push(kept);
    void* const b = activations.named("other").push(500);
    {
      const Scope scope(scratch);
      scratch.named("gradient").push(300);
      const Workspace outer(scratch, "product");
      const Workspace inner(scratch, "within");
      scratch.push(work);
    }
    tape.end_task();
    activations.give_back(swapped ? b : a);
    activations.give_back(swapped ? a : b);
    if (!fewer) activations.named("last").push(40);
    if (more) activations.named("surplus").push(10);
    activations.release(0);
    tape.end_task();
    tape.rewind();
  }
};

std::shared_ptr<const Script> rehearsed(const Micro& micro, bool exclusive = true) {
  const auto script = std::make_shared<Script>();
  Tape tape(script);
  micro(tape, true);
  micro(tape, true);
  script->plan = plan_slot(script->blocks, exclusive);
  return script;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::internal);
    return error.what();
  }
  return "";
}

void expect_refused(const Micro& micro, std::initializer_list<const char*> parts) {
  const auto script = rehearsed({});
  Arena memory(Memory::activations, script->plan.slot + script->plan.shared);
  Tape tape(script, memory.begin(), memory.begin() + script->plan.slot);
  EXPECT_EQ(error_of([&] { Micro{}(tape, false); }), "");
  const std::string error = error_of([&] { micro(tape, false); });
  EXPECT_NE(error, "");
  for (const char* part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << " does not contain " << part;
}

TEST(tape, unrecorded_allocations_are_refused_by_name) {
  expect_refused({.kept = 1001}, {"kept", "1001", "1000"});
  expect_refused({.name = "changed"}, {"changed", "kept"});
  expect_refused({.more = true}, {"surplus", "last"});
  expect_refused({.fewer = true}, {"last"});
  expect_refused({.swapped = true}, {"other", "another time"});
  expect_refused({.work = 800}, {"product", "800"});
}

// Packed documents may make the workspace of a kernel smaller.
TEST(tape, smaller_workspace_than_recorded_is_accepted) {
  const auto script = rehearsed({});
  Arena memory(Memory::activations, script->plan.slot + script->plan.shared);
  Tape tape(script, memory.begin(), memory.begin() + script->plan.slot);
  EXPECT_EQ(error_of([&] { Micro{.work = 10}(tape, false); }), "");
  EXPECT_EQ(error_of([&] { Micro{}(tape, false); }), "");
}

TEST(tape, recording_refuses_differing_micro_batches) {
  for (const Micro& other : {Micro{.kept = 999}, Micro{.name = "changed"}, Micro{.more = true}, Micro{.swapped = true}}) {
    Tape tape(std::make_shared<Script>());
    Micro{}(tape, true);
    EXPECT_NE(error_of([&] { other(tape, true); }), "");
  }
}

// A micro-batch takes the smallest capacity that holds its input; each has its
// own script.
TEST(tape, smallest_sufficient_capacity_is_taken) {
  const auto script = [](Index capacity) { return std::make_shared<Script>(Script{{}, {}, {}, "rows of images", capacity}); };
  const std::vector<std::shared_ptr<Script>> rooms{script(0), script(64), script(256)};
  const auto sized = [](Index capacity) { return Micro{.kept = 1000 + 10 * capacity}; };
  Tape rehearsal(rooms);
  for (const auto& room : rooms) {
    EXPECT_EQ(rehearsal.enter(room->capacity), room->capacity);
    sized(room->capacity)(rehearsal, true);
  }
  Index slot = 0, shared = 0;
  for (const auto& room : rooms) {
    room->plan = plan_slot(room->blocks, true);
    slot = std::max(slot, room->plan.slot), shared = std::max(shared, room->plan.shared);
  }
  EXPECT_LT(rooms[0]->plan.slot, slot);
  Arena memory(Memory::activations, slot + shared);
  Tape tape({rooms.begin(), rooms.end()}, memory.begin(), memory.begin() + slot);
  for (const auto& [count, capacity] : {std::pair<Index, Index>{200, 256}, {0, 0}, {1, 64}, {64, 64}, {256, 256}, {65, 256}}) {
    EXPECT_EQ(tape.enter(count), capacity) << count;
    EXPECT_EQ(error_of([&] { sized(capacity)(tape, false); }), "") << count;
  }
  EXPECT_EQ(tape.slot_high(), slot);
  tape.enter(64);
  EXPECT_NE(error_of([&] { sized(256)(tape, false); }), "");
  try {
    Tape({rooms.begin(), rooms.end()}, memory.begin(), nullptr).enter(257);
    ADD_FAILURE() << "257 rows were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find("257 rows of images, but memory is planned for at most 256"), std::string::npos) << error.what();
  }
}

enum class Do { keep, drop, pass, work };
struct Event {
  Do what;
  Index bytes;  // size in bytes, or index of a kept block
};
using TaskEvents = std::vector<Event>;

std::vector<TaskEvents> drawn(std::mt19937_64& random) {
  std::vector<TaskEvents> tasks(2 + random() % 4);
  for (TaskEvents& task : tasks)
    for (int i = 0; i < int(random() % 12); ++i) task.push_back({Do(random() % 4), Index(1 + random() % 3000)});
  return tasks;
}

// A slot whose micro-batch fills all its allocations with its mark.
class Player {
 public:
  Player(Tape tape, bool real) : tape_(std::move(tape)), real_(real) {}

  void play(const TaskEvents& task, char mark) {
    mark_ = mark;
    std::vector<Held> passing;
    for (const Event& e : task) {
      if (e.what == Do::keep) kept_.push_back(take(e.bytes));
      if (e.what == Do::pass) passing.push_back(take(e.bytes));
      if (e.what == Do::drop && !kept_.empty()) {
        const auto which = kept_.begin() + e.bytes % Index(kept_.size());
        give_back(*which);
        kept_.erase(which);
      }
      if (e.what == Do::work) {
        const Tape::Slot reserved = tape_.open("work");
        if (real_) {
          allow(reserved.base, reserved.bytes);
          std::memset(reserved.base, '#', std::size_t(reserved.bytes));
          forbid(reserved.base, reserved.bytes);
        }
        tape_.close(e.bytes);
      }
    }
    for (; !passing.empty(); passing.pop_back()) give_back(passing.back());
    tape_.end_task();
  }
  void end() {
    for (; !kept_.empty(); kept_.pop_back()) give_back(kept_.back());
    tape_.rewind();
  }
  const Tape& tape() const { return tape_; }

 private:
  struct Held {
    char* data;
    Index bytes;
  };
  Held take(Index bytes) {
    const Held held{static_cast<char*>(tape_.take("piece", bytes)), bytes};
    if (real_) std::memset(held.data, mark_, std::size_t(bytes));
    return held;
  }
  void give_back(const Held& held) {
    const Index marked = real_ ? std::count(held.data, held.data + held.bytes, mark_) : held.bytes;
    EXPECT_EQ(marked, held.bytes) << "bytes of the allocation that still hold the mark";
    tape_.give_back(held.data);
  }

  Tape tape_;
  bool real_;
  char mark_ = 0;
  std::vector<Held> kept_;
};

// Micro-batches alternate between several slots, task by task. Each must find the data that it has written.
TEST(tape, replayed_allocations_never_overlap_live_ones) {
  std::mt19937_64 random(23);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(fmt::format("trial {} of seed 23", trial));
    const auto tasks = drawn(random);
    const int slots = 1 + int(random() % 3);
    const auto script = std::make_shared<Script>();
    Player rehearsal(Tape(script), false);
    for (const TaskEvents& task : tasks) rehearsal.play(task, 0);
    rehearsal.end();
    const SlotPlan& plan = script->plan = plan_slot(script->blocks, slots == 1);
    Arena memory(Memory::activations, slots * plan.slot + plan.shared + 1);
    char* const all = static_cast<char*>(memory.push(memory.capacity()));
    std::vector<Player> players;
    for (int i = 0; i < slots; ++i) players.emplace_back(Tape(script, all + i * plan.slot, all + slots * plan.slot), true);
    std::vector<std::size_t> next(slots, 0);
    for (int iterations = 0; iterations < 30; ++iterations) {
      const int slot = int(random() % slots);
      players[slot].play(tasks[next[slot]], char('a' + slot));
      if (++next[slot] == tasks.size()) players[slot].end(), next[slot] = 0;
    }
    for (const Player& player : players) {
      EXPECT_LE(player.tape().slot_high(), plan.slot);
      EXPECT_LE(player.tape().shared_high(), plan.shared);
    }
  }
}

// Allocation from both ends: what the forward keeps, and scratch that lives while the backward frees it, must leave no
// gap.
TEST(tape, plan_of_nested_lifetimes_leaves_no_gap) {
  std::vector<SlotBlock> blocks;
  constexpr Index layers = 60;
  for (Index i = 0; i < layers; ++i) {
    blocks.push_back({{i, 4 * layers - 2 * i, 1000 + 37 * (i % 11)}, true});
    blocks.push_back({{i, i + 1, 5000}, false});
    blocks.push_back({{4 * layers - 2 * i - 3, 4 * layers - 2 * i + 1, 700}, false});
    blocks.push_back({{4 * layers - 2 * i - 2, 4 * layers - 2 * i, 9000}, false});
  }
  const std::vector<MemoryBlock> plain(blocks.begin(), blocks.end());
  const Index live = plan_memory(plain).live;
  EXPECT_EQ(plan_slot(blocks, true).slot, live);
  EXPECT_EQ(plan_slot(blocks, true).shared, 0);
  const SlotPlan several = plan_slot(blocks, false);
  EXPECT_EQ(several.slot + several.shared, live);
  EXPECT_LT(several.slot, live);
}

// Checks one rank of every pipeline stage of every deck.
TEST(tape, plans_of_all_decks_waste_under_one_percent) {
  int decks = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(GYR_SOURCE_DIR) / "input")) {
    if (file.path().extension() != ".yaml") continue;
    SCOPED_TRACE(file.path().string());
    Deck deck = Deck::read(file.path());
    const RunConfig run = read_run_config(deck);
    const Layout layout = layout_of(run, run.parallel.least_ranks());
    const EngineConfig config = engine_config(run, layout);
    for (int position = 0; position < layout.ranks(); ++position) {
      if (layout.coordinate(position, Axis::data) != 0 || layout.coordinate(position, Axis::tensor) != 0) continue;
      const Capacity capacity = predicted_capacity(config, layout, position);
      EXPECT_GT(capacity.live, 0);
      EXPECT_GE(capacity.working(), capacity.live) << position;
      EXPECT_LT(double(capacity.working()), 1.01 * double(capacity.live)) << position;
    }
    ++decks;
  }
  EXPECT_GE(decks, 10);
}

}  // namespace
}  // namespace gyr::tape_suite
