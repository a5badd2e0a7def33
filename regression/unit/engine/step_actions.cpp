// SPDX-License-Identifier: BSD-3-Clause
// What is due after a step, over all small runs and stop requests.
#include "src/train/step_actions.hpp"

#include <signal.h>

#include "regression/support/testing.hpp"
#include "src/watch/stop.hpp"

namespace gyr::testing::step_actions_suite {
namespace {

StepActions step_actions_of(Index steps, Index eval_every, Index save_every, Index check_replicas = 0) {
  RunConfig run{};
  run.train.steps = steps, run.train.eval_every = eval_every, run.train.check_replicas = check_replicas, run.checkpoint.every = save_every;
  return StepActions(run);
}

TEST(step_actions, a_run_ends_at_its_last_step_and_validates_and_saves_there) {
  for (Index steps = 1; steps < 8; ++steps)
    for (Index every = 0; every < 10; ++every) {
      const StepActions step_actions = step_actions_of(steps, every, every);
      EXPECT_TRUE(step_actions.finished(steps));
      EXPECT_TRUE(step_actions.saves(steps, 0));
      EXPECT_EQ(step_actions.validates(steps), every > 0);
      EXPECT_FALSE(step_actions.takes_another(steps, 0));
      EXPECT_FALSE(step_actions.leaves(steps, SIGTERM)) << "what is due at the end is done though told to stop";
      for (Index step = 0; step < steps; ++step) {
        EXPECT_FALSE(step_actions.finished(step));
        EXPECT_TRUE(step_actions.takes_another(step, 0));
        EXPECT_FALSE(step_actions.takes_another(step, SIGTERM));
      }
    }
}

TEST(step_actions, multiples_are_due_and_the_start_is_not) {
  const StepActions step_actions = step_actions_of(100, 6, 4, 5);
  for (Index step = 1; step < 100; ++step) {
    EXPECT_EQ(step_actions.validates(step), step % 6 == 0) << step;
    EXPECT_EQ(step_actions.saves(step, 0), step % 4 == 0) << step;
    EXPECT_EQ(step_actions.checks_replicas(step), step % 5 == 0) << step;
    EXPECT_NE(step_actions.checks_replicas(step), step_actions.checks_replicas_to_save(step)) << "replicas are compared before a save, once";
  }
  EXPECT_FALSE(step_actions.validates(0));
  const StepActions never = step_actions_of(100, 0, 0);
  for (Index step = 1; step < 100; ++step)
    EXPECT_FALSE(never.validates(step) || never.saves(step, 0) || never.checks_replicas(step) || never.checks_replicas_to_save(step)) << step;
}

// Nothing is lost on leaving, and nothing is written twice; a lost folder is told by the save that fails.
TEST(step_actions, a_run_that_leaves_has_saved_where_it_stands) {
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
