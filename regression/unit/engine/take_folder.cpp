// SPDX-License-Identifier: BSD-3-Clause
// Run id of an output folder after a run has taken it over, and removal of the remains of earlier attempts.
#include "src/train/folder_ownership.hpp"

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::take_folder_suite {
namespace {

namespace fs = std::filesystem;

RunIdentity folder_taken(const Folder& folder, const TrainOptions& options = {}) {
  RunConfig run{};
  run.output = folder.path(), run.watch.lock_patience = 1;
  RunFolder taken;
  const RunIdentity identity = take_folder(taken, run, options);
  begin_in_folder(taken, run, options);
  return identity;
}

// Creates an empty folder that has the name of a checkpoint.
void put_checkpoint(const Folder& folder, const std::string& name) { fs::create_directories(folder / ("checkpoints/" + name)); }

TEST(take_folder, empty_folder_gets_a_new_run_id) {
  const Folder folder;
  const std::string first = folder_taken(folder).id, second = folder_taken(folder, {.resume = true}).id;
  EXPECT_EQ(first.size(), 16u);
  EXPECT_NE(first, second) << "the folder holds nothing that the second run could resume";
}

TEST(take_folder, folder_with_other_checkpoints_is_refused_unchanged) {
  const Folder folder;
  put_checkpoint(folder, "step_00000003");
  put_checkpoint(folder, "step_00000012");
  const Error error = error_of([&] { folder_taken(folder); });
  EXPECT_EQ(error.code, Exit::usage);
  EXPECT_NE(std::string(error.what()).find("already has checkpoints (latest: step 12)"), std::string::npos) << error.what();
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step_00000003"));
}

// A start that is refused between the two calls reports no take-over.
TEST(take_folder, take_over_is_reported_when_the_run_begins) {
  const Folder folder;
  folder.write("lock", R"({"host": "elsewhere", "pid": 7, "job": ""})");
  RunConfig run{};
  run.output = folder.path();
  TrainOptions options;
  options.take_over = true;
  RunFolder taken;
  ::testing::internal::CaptureStdout();
  take_folder(taken, run, options);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  ::testing::internal::CaptureStdout();
  begin_in_folder(taken, run, options);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(printed.starts_with("output folder taken over from process 7 on elsewhere")) << printed;
}

TEST(take_folder, nothing_but_lock_changes_before_the_run_begins) {
  const Folder folder;
  const std::vector<std::string> names{"status.json", "heartbeat.bin", "metrics.jsonl", "run.json"};
  write_identity(folder.path(), {"0123456789abcdef"});
  const std::string identity = contents(folder / "run.json");
  for (std::size_t i = 0; i < 3; ++i) folder.write(names[i], "of another run");
  put_checkpoint(folder, "step_00000003");
  put_checkpoint(folder, "step_00000004.tmp");
  for (const TrainOptions& options : {TrainOptions{.resume = true}, TrainOptions{.start_over = true}}) {
    RunConfig run{};
    run.output = folder.path();
    RunFolder taken;
    take_folder(taken, run, options);
    taken.write_status("failed", 78, "refused");
    for (const std::string& name : names) EXPECT_EQ(contents(folder / name), name == "run.json" ? identity : "of another run") << name;
    EXPECT_TRUE(fs::exists(folder / "checkpoints/step_00000003") && fs::exists(folder / "checkpoints/step_00000004.tmp"));
  }
}

// A supervisor learns from status.json how a run ended.
TEST(take_folder, unwritable_status_is_refused_at_the_start) {
  const Folder folder;
  fs::create_directories(folder / "status.json/inside");
  const Error error = error_of([&] { folder_taken(folder); });
  EXPECT_EQ(error.code, Exit::io);
  EXPECT_NE(std::string(error.what()).find("status.json: cannot be written"), std::string::npos) << error.what();
}

TEST(take_folder, resume_keeps_run_id_fresh_run_archives_checkpoints) {
  const Folder folder;
  put_checkpoint(folder, "step_00000003");
  const RunIdentity old{"0123456789abcdef"};
  write_identity(folder.path(), old);
  EXPECT_EQ(folder_taken(folder, {.resume = true}).id, old.id);
  EXPECT_NE(folder_taken(folder, {.start_over = true}).id, old.id);
  EXPECT_TRUE(fs::exists(folder / ("set_aside/" + old.id + "/checkpoints/step_00000003")));
  EXPECT_FALSE(fs::exists(folder / "checkpoints"));
}

TEST(take_folder, leftovers_of_killed_saves_and_heartbeat_are_removed) {
  const Folder folder;
  put_checkpoint(folder, "step_00000003");
  put_checkpoint(folder, "step_00000004.tmp");
  fs::create_directories(folder / "dumps/step_00000002.tmp");
  folder.write("heartbeat.bin", "of more ranks");
  write_identity(folder.path(), {"0123456789abcdef"});
  folder_taken(folder, {.resume = true});
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step_00000003"));
  for (const char* gone : {"checkpoints/step_00000004.tmp", "dumps/step_00000002.tmp", "heartbeat.bin"})
    EXPECT_FALSE(fs::exists(folder / gone)) << gone;
}

}  // namespace
}  // namespace gyr::testing::take_folder_suite
