// SPDX-License-Identifier: BSD-3-Clause
// Faults of a rank under `gyrfalcon run`: each must be detected, the rank named, and the run must end with the losses
// of an undisturbed run. One trial of each kind is made here; campaign.cpp makes many.
#include <gtest/gtest.h>

#include <cmath>

#include "regression/support/faults.hpp"

namespace gyr::testing::fault_suite {

namespace {

class fault : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(fault, fault, ::testing::Values("kill", "stop", "hang", "exit", "slow", "nan", "bitflip"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(fault, rank_fault_is_detected_named_and_recovered_from) {
  Trials trials(std::string("fault of a rank: ") + GetParam());
  trials.attempt([] { fault_trial(GetParam(), 1); });
}

TEST(fault, eight_ranks_survive_damaged_shards_and_full_disk) {
  const auto damaged = [](const char* what, Damage how) {
    Trials trials(what);
    trials.attempt([&] { damage_trial(how, 1); });
  };
  damaged("8 ranks: flipped bit in a shard of the newest checkpoint", Damage::flipped_bit);
  damaged("8 ranks: shard of the newest checkpoint truncated", Damage::truncated);
  damaged("8 ranks: shard of the newest checkpoint missing", Damage::removed);
  Trials trials("8 ranks: disk of one is full");
  for (unsigned seed = 1; seed < 4; ++seed) trials.attempt([&] { full_disk_trial(seed); });
}

// A lost rank without a spare removes its model replica. The global batch size stays, and the losses agree up to
// rounding.
TEST(fault, lost_rank_without_spare_shrinks_data_parallel_group) {
  const Folder full, folder;
  const Words settings{"train.steps=8",     "optimizer.decay_steps=8", "checkpoint.every=2",
                       "parallel.tensor=1", "watchdog.heartbeat=0.1",  "supervise.silent=2"};
  ASSERT_EQ(run(Material::get().train(full.path(), settings)).code, 0);
  Words words = Material::get().train(folder.path(), settings);
  words[0] = "run";
  for (const char* more : {"-n", "4", "--spares", "0", "fault.kind=stop", "fault.rank=3", "fault.step=6"}) words.push_back(more);
  const Result r = run(words);
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  const auto status = json_in(folder / "supervisor.json");
  EXPECT_EQ(status["attempts"][0]["rank"], 3) << status.dump(1);
  EXPECT_EQ(status["attempts"][1]["ranks"], 2) << status.dump(1);
  const auto expected = losses(full.path()), series = losses(folder.path());
  ASSERT_EQ(series.size(), expected.size());
  for (const auto& [step, loss] : expected) EXPECT_NEAR(series.at(step), loss, 1e-5 * std::abs(loss)) << step;
}

// The rank exits at the same step in every attempt, so no attempt reaches the next checkpoint.
TEST(fault, supervisor_gives_up_a_run_without_progress) {
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

// The launcher imitates a host that fails the self-test: the run is not restarted there.
TEST(fault, selftest_precedes_a_restart) {
  const Folder folder;
  put_contents(folder / "launch", "#!/bin/sh\ncase \" $* \" in *' selftest '*) echo tested; exit \"$SICK\";; esac\nshift 2\nexec \"$@\"\n");
  std::filesystem::permissions(folder / "launch", std::filesystem::perms::owner_all);
  for (const char* sick : {"0", "69"}) {
    Words words = Material::get().train(folder / sick,
                                        {"train.steps=6", "checkpoint.every=2", "fault.kind=exit:7", "fault.step=4", "supervise.selftest=always"});
    words[0] = "run";
    for (const std::string& more : {std::string("-n"), std::string("1"), std::string("--launcher"), (folder / "launch").string()})
      words.push_back(more);
    const Result r = run(words, {.env = {{"SICK", sick}}});
    EXPECT_NE(r.out.find("tested"), std::string::npos) << output_of(r);
    EXPECT_EQ(json_in(folder / sick / "supervisor.json")["attempts"].size(), *sick == '0' ? 2u : 1u) << output_of(r);
    EXPECT_EQ(r.code == 0, *sick == '0') << output_of(r);
    EXPECT_EQ(r.out.find("the self-test ended with exit code 69") == std::string::npos, *sick == '0') << output_of(r);
  }
}

TEST(fault, supervised_branch_counts_from_its_checkpoint) {
  const Folder folder;
  const std::string from = Material::get().trained();
  const int step = std::stoi(from.substr(from.rfind('_') + 1));
  Words words = Material::get().train(folder.path(), {fmt::format("train.steps={}", step + 4), "train.init_from=" + from, "train.branch=true",
                                                      "fault.kind=exit:7", "fault.attempt=-1", fmt::format("fault.step={}", step + 2)});
  words[0] = "run";
  for (const char* more : {"-n", "1", "--launcher", "none"}) words.push_back(more);
  const Result r = run(words);
  EXPECT_EQ(r.code, 7) << output_of(r);
  for (const std::string& part : {fmt::format("newest checkpoint: step {}", step), fmt::format("no progress since step {}", step)})
    EXPECT_NE(r.out.find(part), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("step 0"), std::string::npos) << r.out;
}

// An error that a restart cannot fix must not cause a restart.
TEST(fault, run_with_wrong_deck_is_not_restarted) {
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
