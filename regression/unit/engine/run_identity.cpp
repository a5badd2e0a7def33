// SPDX-License-Identifier: BSD-3-Clause
// Run that a checkpoint belongs to. Newer checkpoints carry a run id. Checkpoints of older programs have none and
// belong to the run up to the step that `latest` names.
#include "src/checkpoint/run_identity.hpp"

#include <random>
#include <set>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/writer.hpp"

namespace gyr::testing::run_identity_suite {
namespace {

namespace fs = std::filesystem;

void save(const fs::path& output, std::int64_t step, const std::string& run, bool is_latest = true) {
  CheckpointHeader header;
  header.step = step, header.run = run;
  const float number = 1;
  CheckpointWriter writer(checkpoint_path(output / "checkpoints", step), header, {stored_tensor(Content::weight, "w", DType::f32, {1})});
  writer.write(0, 1, &number);
  writer.commit();
  if (is_latest) put_contents(output / "checkpoints/latest", checkpoint_path({}, step).string() + "\n");
}

TEST(run_identity, drawn_run_ids_are_unique) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.insert(RunIdentity::drawn().id);
  EXPECT_EQ(ids.size(), 100u);
  for (const std::string& id : ids) EXPECT_EQ(id.size(), 16u);
}

TEST(run_identity, run_id_is_stored_in_each_checkpoint) {
  const Folder folder;
  const std::string id = RunIdentity::drawn().id;
  save(folder.path(), 3, id);
  EXPECT_EQ(read_header(checkpoint_path(folder / "checkpoints", 3)).run, id);
  EXPECT_EQ(identity_in(folder.path())->id, id);  // also if the checkpoints were copied into another folder
  EXPECT_EQ(newest_step_of_run(folder.path()), 3);
}

// An older program has restarted from the beginning in a folder with checkpoints. Its own checkpoints are those up to
// the one that `latest` names.
TEST(run_identity, checkpoints_without_run_id_count_to_latest) {
  std::mt19937 random(5);
  for (int draw = 0; draw < 10; ++draw) {
    const Folder folder;
    const int abandoned = 2 + int(random() % 5), own_step = 1 + int(random() % unsigned(abandoned));
    for (int step = 1; step <= abandoned; ++step) save(folder.path(), step, "");
    for (int step = 1; step <= own_step; ++step) save(folder.path(), step, "");
    SCOPED_TRACE(fmt::format("draw {}: abandoned at {}, now at {}", draw, abandoned, own_step));
    EXPECT_EQ(newest_step_of_run(folder.path()), own_step);
    auto run = identity_in(folder.path());
    ASSERT_TRUE(run);
    // A newer program resumes the run. Later checkpoints of the older program then belong to no run, and those up to
    // `own_step` are used.
    write_identity(folder.path(), *run);
    EXPECT_EQ(newest_step_of_run(folder.path()), own_step);
    const int further = own_step + 1 + int(random() % 3);
    save(folder.path(), further, run->id);
    EXPECT_EQ(newest_step_of_run(folder.path()), further);
    fs::remove_all(checkpoint_path(folder / "checkpoints", further));
    EXPECT_EQ(newest_step_of_run(folder.path()), own_step);
    save(folder.path(), further, RunIdentity::drawn().id);
    EXPECT_EQ(newest_step_of_run(folder.path()), own_step);
  }
}

TEST(run_identity, without_latest_the_newest_valid_checkpoint_counts) {
  const Folder folder;
  EXPECT_FALSE(identity_in(folder.path()));
  EXPECT_EQ(newest_step_of_run(folder.path()), 0);
  for (const int step : {2, 5}) save(folder.path(), step, "", false);
  EXPECT_EQ(newest_step_of_run(folder.path()), 5);
  put_contents(folder / "checkpoints/latest", "step_00000004\n");  // names a missing checkpoint
  EXPECT_EQ(newest_step_of_run(folder.path()), 5);
  put_contents(checkpoint_path(folder / "checkpoints", 5) / "manifest.json", "{}");
  EXPECT_EQ(newest_step_of_run(folder.path()), 2);
}

TEST(run_identity, unreadable_run_identity_is_an_error) {
  const Folder folder;
  save(folder.path(), 1, "");
  for (const char* text :
       {"", "{}", "{\"run\": 7, \"unmarked_until\": 1}", "{\"run\": \"0123\", \"unmarked_until\": 1}", "{\"run\": \"0123456789abcdef\"}"}) {
    put_contents(folder / "run.json", text);
    EXPECT_EQ(error_of([&] { identity_in(folder.path()); }).code, Exit::data) << text;
  }
}

TEST(run_identity, run_identity_moves_with_a_run_set_aside) {
  const Folder folder;
  EXPECT_FALSE(set_aside(folder.path()));
  for (int times = 1; times <= 2; ++times) {
    const RunIdentity run{"0123456789abcdef"};
    save(folder.path(), 4, run.id);
    write_identity(folder.path(), run);
    put_contents(folder / "metrics.jsonl", "{}\n");
    const auto aside = set_aside(folder.path());
    ASSERT_TRUE(aside);
    EXPECT_EQ(aside->filename().string(), times == 1 ? run.id : run.id + ".2");
    EXPECT_EQ(newest_step_of_run(*aside), 4);
    EXPECT_TRUE(fs::exists(*aside / "metrics.jsonl"));
    for (const char* name : {"checkpoints", "run.json", "metrics.jsonl"}) EXPECT_FALSE(fs::exists(folder / name)) << name;
    EXPECT_FALSE(identity_in(folder.path()));
  }
  put_contents(folder / "run.json", "damaged");
  EXPECT_EQ(set_aside(folder.path())->filename().string(), "unknown");
}

// A relative link in the moved folder still points to the same file, unless that file was moved with it.
TEST(run_identity, run_set_aside_keeps_its_link_targets) {
  const Folder folder;
  const fs::path output = folder / "out";
  fs::create_directories(output / "dumps" / "deep");
  for (const char* name : {"elsewhere", "out/beside"}) put_contents(folder / name, name);
  put_contents(output / "deck.yaml", "deck");
  fs::create_symlink("../elsewhere", output / "metrics.jsonl");
  fs::create_symlink("../../../elsewhere", output / "dumps/deep/out");
  fs::create_symlink("../../beside", output / "dumps/deep/beside");
  fs::create_symlink("../../deck.yaml", output / "dumps/deep/deck");
  fs::create_symlink(folder / "elsewhere", output / "dumps/absolute");
  const fs::path aside = set_aside(output).value();
  for (const char* link : {"metrics.jsonl", "dumps/deep/out", "dumps/absolute"}) EXPECT_EQ(contents(aside / link), "elsewhere") << link;
  EXPECT_EQ(contents(aside / "dumps/deep/beside"), "out/beside");
  EXPECT_EQ(fs::read_symlink(aside / "dumps/deep/deck"), "../../deck.yaml");
  EXPECT_FALSE(fs::is_symlink(output / "metrics.jsonl"));
}

TEST(run_identity, pruning_keeps_checkpoints_of_other_runs) {
  const Folder folder;
  const std::string mine = "00000000000000aa", other = "00000000000000bb";
  const auto steps = [&] { return committed_steps(folder / "checkpoints"); };
  for (const auto& [step, run] :
       std::vector<std::pair<int, std::string>>{{1, mine}, {2, other}, {3, ""}, {4, other}, {5, mine}, {6, mine}, {9, other}})
    save(folder.path(), step, run);
  EXPECT_TRUE(prune(folder / "checkpoints", 6, {2, 0}, mine).empty());
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{2, 4, 5, 6, 9}));
  EXPECT_TRUE(prune(folder / "checkpoints", 6, {1, 0}, mine).empty());
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{2, 4, 6, 9}));
}

}  // namespace
}  // namespace gyr::testing::run_identity_suite
