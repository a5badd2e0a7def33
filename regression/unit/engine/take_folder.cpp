// SPDX-License-Identifier: BSD-3-Clause
// Which run an output folder belongs to once it is taken, and what of earlier attempts is left in it then.
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
  return take_folder(taken, run, options);
}

// A checkpoint as far as its name goes.
void put_checkpoint(const Folder& folder, const std::string& name) { fs::create_directories(folder / ("checkpoints/" + name)); }

TEST(take_folder, of_an_empty_folder_draws_an_id_each_time) {
  const Folder folder;
  const std::string first = folder_taken(folder).id, second = folder_taken(folder, {.resume = true}).id;
  EXPECT_EQ(first.size(), 16u);
  EXPECT_NE(first, second) << "nothing was written that it could go on from";
}

TEST(take_folder, checkpoints_of_another_run_are_refused_and_stay) {
  const Folder folder;
  put_checkpoint(folder, "step_00000003");
  put_checkpoint(folder, "step_00000012");
  const Error error = error_of([&] { folder_taken(folder); });
  EXPECT_EQ(error.code, Exit::usage);
  EXPECT_NE(std::string(error.what()).find("the last of step 12"), std::string::npos) << error.what();
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step_00000003"));
}

TEST(take_folder, a_resumed_run_keeps_its_id_and_another_one_sets_it_aside) {
  const Folder folder;
  put_checkpoint(folder, "step_00000003");
  const RunIdentity old{"0123456789abcdef"};
  write_identity(folder.path(), old);
  EXPECT_EQ(folder_taken(folder, {.resume = true}).id, old.id);
  EXPECT_NE(folder_taken(folder, {.anew = true}).id, old.id);
  EXPECT_TRUE(fs::exists(folder / ("set_aside/" + old.id + "/checkpoints/step_00000003")));
  EXPECT_FALSE(fs::exists(folder / "checkpoints"));
}

TEST(take_folder, leavings_of_killed_saves_and_the_heartbeat_are_removed) {
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
