// SPDX-License-Identifier: BSD-3-Clause
// Whatever happens to a rank, somebody notices, names it, and the run ends with the losses of one that was left alone. One trial of each
// kind here, many in campaign.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "regression/support/faults.hpp"

namespace gyr::testing::fault_suite {

namespace {

class fault : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(fault, fault, ::testing::Values("kill", "stop", "hang", "exit", "slow", "nan", "bitflip"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(fault, is_noticed_named_and_survived) {
  Trials trials(std::string("fault of a rank: ") + GetParam());
  trials.attempt([] { fault_trial(GetParam(), 1); });
}

TEST(fault, eight_ranks_lose_nothing_to_damaged_or_full_disks) {
  const auto damaged = [](const char* what, Damage how) {
    Trials trials(what);
    trials.attempt([&] { damage_trial(how, 1); });
  };
  damaged("8 ranks: flipped bit in a shard of the newest checkpoint", Damage::flipped_bit);
  damaged("8 ranks: shard of the newest checkpoint cut short", Damage::cut_short);
  damaged("8 ranks: shard of the newest checkpoint missing", Damage::removed);
  Trials trials("8 ranks: full disk of one");
  for (unsigned seed = 1; seed < 4; ++seed) trials.attempt([&] { full_disk_trial(seed); });
}

// A lost rank that is not replaced takes its replica with it; the batch stays, and the losses to rounding.
TEST(fault, without_a_spare_the_data_axis_shrinks_and_the_batch_stays) {
  const Folder whole, folder;
  const Words settings{"train.steps=8",     "optimizer.decay_steps=8", "checkpoint.every=2",
                       "parallel.tensor=1", "watchdog.heartbeat=0.1",  "supervise.silent=2"};
  ASSERT_EQ(run(Material::get().train(whole.path(), settings)).code, 0);
  Words words = Material::get().train(folder.path(), settings);
  words[0] = "run";
  for (const char* more : {"-n", "4", "--spares", "0", "fault.kind=stop", "fault.rank=3", "fault.step=6"}) words.push_back(more);
  const Result r = run(words);
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  const auto status = json_in(folder / "supervisor.json");
  EXPECT_EQ(status["attempts"][0]["rank"], 3) << status.dump(1);
  EXPECT_EQ(status["attempts"][1]["ranks"], 2) << status.dump(1);
  const auto expected = losses(whole.path()), series = losses(folder.path());
  ASSERT_EQ(series.size(), expected.size());
  for (const auto& [step, loss] : expected) EXPECT_NEAR(series.at(step), loss, 1e-5 * std::abs(loss)) << step;
}

// Killed in the same step in every attempt, it never reaches the next checkpoint.
TEST(fault, a_run_that_makes_no_progress_is_given_up) {
  const Folder folder;
  Words words =
      Material::get().train(folder.path(), {"train.steps=8", "checkpoint.every=2", "fault.kind=exit:7", "fault.attempt=-1", "fault.step=4"});
  words[0] = "run";
  for (const char* more : {"-n", "1", "--launcher", "none"}) words.push_back(more);
  const Result r = run(words);
  EXPECT_EQ(r.code, 7) << r.out << r.err;
  EXPECT_NE(r.out.find("no progress since step 2"), std::string::npos) << r.out;
  EXPECT_EQ(json_in(folder / "supervisor.json")["attempts"].size(), 3u);
}

// What another start cannot mend is not started again.
TEST(fault, a_wrong_deck_is_not_tried_twice) {
  const Folder folder;
  Words words = Material::get().train(folder.path(), {"train.global_batch_size=7"});
  words[0] = "run";
  for (const char* more : {"-n", "2"}) words.push_back(more);
  const Result r = run(words);
  EXPECT_EQ(r.code, 78) << r.out << r.err;
  EXPECT_NE(r.out.find("0 restarts"), std::string::npos) << r.out;
}

}  // namespace

}  // namespace gyr::testing::fault_suite
