// SPDX-License-Identifier: BSD-3-Clause
// Number of checkpoints that a run will save and that exist at once, compared with a simulated run, and the check of the
// free disk space.
#include "src/train/checkpoint_space.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/base/file_system.hpp"

namespace gyr::testing::checkpoint_space_suite {
namespace {

RunConfig run_of(Index steps, Index every, Index keep, Index keep_every, bool at_end) {
  RunConfig run{};
  run.train.steps = steps;
  run.checkpoint.every = every, run.checkpoint.keep = keep, run.checkpoint.keep_every = keep_every, run.checkpoint.at_end = at_end;
  return run;
}

struct Simulated {
  Index saves = 0, most = 0;  // most: highest number of checkpoints at once
};

// Saves and removes checkpoints as a run does. A save is complete before an older checkpoint is removed.
Simulated simulated(const RunConfig& run, Index done, std::vector<std::int64_t> kept) {
  Simulated s;
  const CheckpointConfig& c = run.checkpoint;
  for (Index step = done + 1; step <= run.train.steps; ++step) {
    if (!((c.every > 0 && step % c.every == 0) || (step == run.train.steps && c.at_end))) continue;
    kept.push_back(step);
    ++s.saves;
    s.most = std::max(s.most, Index(kept.size()));
    std::vector<std::int64_t> after;
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (Index(kept.size() - i) <= c.keep || (c.keep_every > 0 && kept[i] % c.keep_every == 0)) after.push_back(kept[i]);
    kept = after;
  }
  return s;
}

TEST(checkpoint_space, predicted_checkpoints_cover_a_simulated_run) {
  std::mt19937 random(seed_of_run());
  const auto below = [&](unsigned n) { return Index(random() % n); };
  for (int draw = 0; draw < 3000; ++draw) {
    const RunConfig run = run_of(below(40), below(8), 1 + below(4), below(3) == 0 ? 1 + below(9) : 0, below(2) == 0);
    const Index done = below(30), keep = run.checkpoint.keep;
    std::vector<std::int64_t> present;
    for (Index i = std::min(done, below(unsigned(keep) + 1)); i > 0; --i) present.push_back(done + 1 - i);
    const Simulated real = simulated(run, done, present);
    EXPECT_EQ(saves_after(run, done), real.saves) << draw;
    const Index most = most_new_checkpoints(run, done, present);
    EXPECT_LE(real.most - (real.saves > 0 ? Index(present.size()) : 0), most) << draw;
    EXPECT_LE(most, real.saves) << draw;
    if (run.checkpoint.keep_every == 0 && present.empty()) {
      EXPECT_EQ(most, real.most) << draw;
    }
  }
}

TEST(checkpoint_space, best_checkpoint_needs_room_of_its_own) {
  RunConfig run = run_of(40, 10, 2, 0, true);
  EXPECT_EQ(saves_after(run, 0), 4);
  EXPECT_EQ(most_new_checkpoints(run, 0, {}), 3);
  run.train.eval_every = 5, run.checkpoint.keep_best = true;
  EXPECT_EQ(saves_after(run, 0), 12) << "each of the eight validations may be the best so far";
  EXPECT_EQ(most_new_checkpoints(run, 0, {}), 4);
}

TEST(checkpoint_space, one_checkpoint_must_fit_and_all_should) {
  const Folder folder;
  RunConfig run = run_of(10, 2, 3, 0, true);
  run.output = folder.path();
  const Index all = Index(free_bytes(folder.path()).value());
  EXPECT_EQ(check_checkpoint_space(run, 1000, 0, {}), "");
  EXPECT_NE(check_checkpoint_space(run, all / 3, 0, {}).find("4 checkpoints of "), std::string::npos);
  EXPECT_EQ(check_checkpoint_space(run, all / 3, 4, {2, 3, 4}), "") << "the run removes one of its three checkpoints after each save";
  const Error error = error_of([&] { check_checkpoint_space(run, 2 * all + (Index(1) << 40), 0, {}); });
  EXPECT_EQ(error.code, Exit::io);
  EXPECT_NE(std::string(error.what()).find("Nothing has been trained"), std::string::npos) << error.what();
  EXPECT_EQ(check_checkpoint_space(run, Index(1) << 60, 10, {}), "") << "a finished run saves nothing";
}

}  // namespace
}  // namespace gyr::testing::checkpoint_space_suite
