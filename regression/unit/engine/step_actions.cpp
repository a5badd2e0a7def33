// SPDX-License-Identifier: BSD-3-Clause
// Actions due after each step (end, validation, save, replica check, exit), for all small runs and stop requests.
#include "src/train/step_actions.hpp"

#include <signal.h>

#include "regression/support/testing.hpp"
#include "src/watch/stop.hpp"

namespace gyr::testing::step_actions_suite {
namespace {

StepActions step_actions_of(Index steps, Index eval_every, Index save_every, Index check_replicas = 0, bool at_end = true) {
  RunConfig run{};
  run.checkpoint.at_end = at_end;
  run.train.steps = steps, run.train.eval_every = eval_every, run.train.check_replicas = check_replicas, run.checkpoint.every = save_every;
  return StepActions(run);
}

TEST(step_actions, last_step_ends_run_validates_and_saves) {
  for (Index steps = 1; steps < 8; ++steps)
    for (Index every = 0; every < 10; ++every) {
      const StepActions step_actions = step_actions_of(steps, every, every);
      EXPECT_TRUE(step_actions.finished(steps));
      EXPECT_TRUE(step_actions.saves(steps, 0));
      EXPECT_EQ(step_actions.validates(steps), every > 0);
      EXPECT_FALSE(step_actions.takes_another(steps, 0));
      EXPECT_FALSE(step_actions.leaves(steps, SIGTERM)) << "the final actions are executed in spite of a stop request";
      for (Index step = 0; step < steps; ++step) {
        EXPECT_FALSE(step_actions.finished(step));
        EXPECT_TRUE(step_actions.takes_another(step, 0));
        EXPECT_FALSE(step_actions.takes_another(step, SIGTERM));
      }
    }
}

TEST(step_actions, periodic_actions_are_due_at_multiples_only) {
  const StepActions step_actions = step_actions_of(100, 6, 4, 5);
  for (Index step = 1; step < 100; ++step) {
    EXPECT_EQ(step_actions.validates(step), step % 6 == 0) << step;
    EXPECT_EQ(step_actions.saves(step, 0), step % 4 == 0) << step;
    EXPECT_EQ(step_actions.checks_replicas(step), step % 5 == 0) << step;
    EXPECT_NE(step_actions.checks_replicas(step), step_actions.checks_replicas_to_save(step)) << "replicas are compared exactly once before a save";
  }
  EXPECT_FALSE(step_actions.validates(0));
  const StepActions never = step_actions_of(100, 0, 0);
  for (Index step = 1; step < 100; ++step)
    EXPECT_FALSE(never.validates(step) || never.saves(step, 0) || never.checks_replicas(step) || never.checks_replicas_to_save(step)) << step;
}

TEST(step_actions, final_save_can_be_turned_off) {
  for (const Index every : {0, 4, 9}) {
    const StepActions step_actions = step_actions_of(9, 0, every, 0, false);
    for (const int reason : {0, SIGTERM}) EXPECT_EQ(step_actions.saves(9, reason), every == 9) << every;
    EXPECT_TRUE(step_actions.saves(7, SIGHUP)) << "a stopped run still saves";
  }
}

TEST(step_actions, step_beyond_the_last_counts_as_finished) {
  const StepActions step_actions = step_actions_of(5, 0, 0);
  EXPECT_TRUE(step_actions.finished(6));
  EXPECT_FALSE(step_actions.leaves(6, SIGTERM) || step_actions.takes_another(6, 0));
}

// A run that stops early saves its current step, unless that step is saved already. If its folder is lost, it tries to
// save anyway, and the failing save reports the loss.
TEST(step_actions, stopped_run_saves_its_current_step_once) {
  const StepActions step_actions = step_actions_of(9, 2, 3);
  for (const int reason : {SIGTERM, stop_file_reason, walltime_reason})
    for (Index step = 0; step < 9; ++step) {
      EXPECT_TRUE(step_actions.leaves(step, reason));
      EXPECT_TRUE(step_actions.saves(step, reason));
      for (Index saved = 0; saved <= step; ++saved) EXPECT_EQ(step_actions.saves_before_exit(step, reason, saved), saved != step);
    }
  for (Index step = 0; step <= 9; ++step) {
    EXPECT_TRUE(step_actions.leaves(step, folder_lost_reason));
    EXPECT_TRUE(step_actions.saves_before_exit(step, folder_lost_reason, step));
    EXPECT_FALSE(step_actions.leaves(step, 0) || step_actions.saves_before_exit(step, 0, 0));
  }
}

}  // namespace
}  // namespace gyr::testing::step_actions_suite
