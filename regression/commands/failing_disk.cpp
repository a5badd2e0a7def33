// SPDX-License-Identifier: BSD-3-Clause
// Tests of a failing disk: any system call of a save fails with any error. The run must end with one message that names
// the file. Earlier checkpoints stay intact, the new one is intact or absent, and the next attempt ends with the bits
// of an undisturbed run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "regression/support/material.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing::failing_disk_suite {

namespace fs = std::filesystem;

namespace {

constexpr int steps = 8, saved = 5;

Words train(const fs::path& folder, int last, bool resume) {
  Words words{fmt::format("train.steps={}", last), fmt::format("optimizer.decay_steps={}", steps), "checkpoint.every=1", "checkpoint.keep=3"};
  if (resume) words.push_back("--resume");
  return Material::get().train(folder, words);
}

struct Reference {
  Reference() {
    EXPECT_EQ(run(train(full.path(), steps, false)).code, 0);
    EXPECT_EQ(run(train(before.path(), saved, false)).code, 0);
  }
  Folder full, before;
};

// System call of a save, as logged: name, path, and second path of a rename.
struct Call {
  std::string what, path, to;
};

std::vector<Call> calls_in(const fs::path& log) {
  std::vector<Call> calls;
  for (const std::string& line : lines_of(contents(log))) {
    const auto first = line.find(' '), second = line.find(' ', first + 1);
    calls.push_back({line.substr(0, first), line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return calls;
}

// System calls of one more training step and its save.
std::vector<Call> system_calls_of_a_save(const Reference& reference) {
  const Folder folder, other_folder;
  fs::copy(reference.before.path(), folder.path(), fs::copy_options::recursive);
  const Result r = run(train(folder.path(), saved + 1, true), {.env = {{"LD_PRELOAD", GYR_FAILING_CALLS}, {"GYR_CALL_LOG", other_folder / "calls"}}});
  EXPECT_EQ(r.code, 0) << r.err;
  return calls_in(other_folder / "calls");
}

// Index of the system call that fails (from 1), and its errno.
struct Refusal {
  std::size_t call;
  int error;
};

constexpr int writes_zero_bytes = 0;  // errno value for a write that writes 0 bytes without an error

void fail_call(const Reference& reference, const Refusal& refusal) {
  const auto [call, error] = refusal;
  const char* reason = std::strerror(error == writes_zero_bytes ? ENOSPC : error);
  SCOPED_TRACE(fmt::format("call {} fails with error number {}", call, error));
  const Folder folder;
  fs::copy(reference.before.path(), folder.path(), fs::copy_options::recursive);
  const Result r =
      run(train(folder.path(), saved + 1, true),
          {.env = {{"LD_PRELOAD", GYR_FAILING_CALLS}, {"GYR_FAILING_CALL", std::to_string(call)}, {"GYR_FAILING_ERROR", std::to_string(error)}}});
  EXPECT_NE(r.err.find("failing call: "), std::string::npos) << r.err;
  const std::string& printed = r.code == 0 ? r.out : r.err;  // the run continues if only the removal of an older checkpoint fails
  EXPECT_TRUE(r.code == int(Exit::io) || (r.code == 0 && printed.find("cannot be removed") != std::string::npos)) << r.code << r.out << r.err;
  EXPECT_NE(printed.find(reason), std::string::npos) << printed;
  EXPECT_NE(printed.find("/checkpoints"), std::string::npos) << printed;
  for (const int step : {saved - 1, saved, saved + 1}) {
    const fs::path path = Material::checkpoint(folder.path(), step);
    if (step > saved && !fs::exists(path)) continue;
    EXPECT_EQ(run({"info", path, "--check"}).code, 0) << path;
  }
  const Result next = run(train(folder.path(), steps, true));
  ASSERT_EQ(next.code, 0) << next.out << next.err;
  expect_bitwise_equal_runs(reference.full.path(), folder.path(), steps);
}

// Index of the last matching call before `end`; -1 if there is none.
template <class Fits>
long last_call(const std::vector<Call>& calls, Fits&& fits, std::size_t end) {
  for (std::size_t i = std::min(end, calls.size()); i-- > 0;)
    if (fits(calls[i])) return long(i);
  return -1;
}

bool writes(const Call& c) { return c.what == "write" || c.what == "pwrite"; }

// Chooses the failures to try: about `some` calls evenly spaced, the first and last call of each kind (close: of each
// file), and writes of 0 bytes. The latter include all writes to files other than shards.
std::vector<Refusal> refusals(const std::vector<Call>& calls, std::size_t some) {
  static const int reasons[] = {EIO, ENOSPC, EDQUOT, ESTALE};
  std::map<std::string, std::size_t> first, last;
  std::set<std::size_t> chosen;
  std::vector<Refusal> refused;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string kind = calls[i].what == "close" ? "close " + fs::path(calls[i].path).filename().string() : calls[i].what;
    first.emplace(kind, i), last[kind] = i;
    if (i % std::max<std::size_t>(1, calls.size() / some) == 0) chosen.insert(i);
    if (writes(calls[i]) && (refused.size() < some || calls[i].path.find(".h5") == std::string::npos)) refused.push_back({i + 1, writes_zero_bytes});
  }
  for (const auto& ends : {first, last})
    for (const auto& [what, i] : ends) chosen.insert(i);
  for (const std::size_t i : chosen) refused.push_back({i + 1, reasons[i % 4]});
  return refused;
}

void fail_calls(std::size_t some) {
  const Reference reference;
  const std::vector<Call> calls = system_calls_of_a_save(reference);
  ASSERT_GT(calls.size(), 10u);
  Trials trials("failing system call of a save (EIO, ENOSPC, EDQUOT, ESTALE, 0 bytes written)");
  for (const Refusal& refusal : refusals(calls, std::min(some, calls.size()))) trials.attempt([&] { fail_call(reference, refusal); });
}

}  // namespace

// After a power loss only fsynced data remains. Each rename must follow the fsync of the renamed file or folder, and
// must itself be fsynced before older files are removed or training continues.
TEST(failing_disk, every_rename_is_fsynced_before_and_after) {
  for (const bool async : {false, true})
    for (const int ranks : {0, 4}) {
      SCOPED_TRACE(fmt::format("{} ranks, async {}", ranks, async));
      const Folder folder, other_folder;
      const fs::path log = other_folder / "calls";
      Words words{"train.steps=3", "checkpoint.every=1", "checkpoint.keep=1", std::string("checkpoint.async=") + (async ? "true" : "false")};
      if (ranks > 0) words.insert(words.end(), {"parallel.data=2", "parallel.tensor=2"});
      const Result r =
          run(Material::get().train(folder.path(), words), {.ranks = ranks, .env = {{"LD_PRELOAD", GYR_FAILING_CALLS}, {"GYR_CALL_LOG", log}}});
      ASSERT_EQ(r.code, 0) << r.err;
      const std::vector<Call> calls = calls_in(log);
      const auto parent = [](const std::string& path) { return fs::path(path).parent_path().string(); };
      int renames = 0, checkpoints = 0;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const Call& name = calls[i];
        if (name.what != "rename" || !name.path.ends_with(".tmp")) continue;
        SCOPED_TRACE(fmt::format("call {}: {} to {}", i, name.path, name.to));
        ++renames;
        const bool is_checkpoint = name.to.find("step_") != std::string::npos && parent(name.to).ends_with("/checkpoints");
        checkpoints += is_checkpoint;
        // Each file must be fsynced after its last write, and its folder after the last file.
        std::map<std::string, long> written;
        for (std::size_t w = 0; w < i; ++w)
          if (writes(calls[w]) && (calls[w].path == name.path || parent(calls[w].path) == name.path)) written[calls[w].path] = long(w);
        EXPECT_GE(written.size(), is_checkpoint ? 1u + unsigned(std::max(1, ranks)) : 1u);  // index or manifest, and one shard per rank
        for (const auto& [path, last] : written) {
          // Files written under a temporary name inside a folder were renamed earlier and are checked there.
          const long synced = last_call(
              calls, [&, path = path](const Call& c) { return c.what == "fsync" && c.path == path; }, i);
          EXPECT_GT(synced, last) << path;
          if (is_checkpoint) {
            EXPECT_GT(last_call(
                          calls, [&](const Call& c) { return c.what == "fsync" && c.path == name.path; }, i),
                      synced)
                << path;
          }
        }
        // The rename itself must be fsynced before the next rename in the checkpoints folder.
        std::size_t next = i + 1;
        while (next < calls.size() && !(calls[next].what == "rename" && parent(calls[next].path) == parent(name.to))) ++next;
        EXPECT_GT(last_call(
                      calls, [&](const Call& c) { return c.what == "fsync" && c.path == parent(name.to); }, next),
                  long(i));
      }
      EXPECT_EQ(checkpoints, 3);
      EXPECT_GT(renames, 2 * 3);  // also manifests and `latest`
    }
}

TEST(failing_disk, failed_system_call_in_a_save_loses_nothing) { fail_calls(4); }
TEST(every_failing_call, every_failed_system_call_in_save_loses_nothing) { fail_calls(1000000); }

// A run on a disk that reports this number of free bytes.
Result run_with_free_bytes(const Words& words, long free) {
  return run(words, {.env = {{"LD_PRELOAD", GYR_FAILING_CALLS}, {"GYR_FREE_BYTES", std::to_string(free)}}});
}

TEST(failing_disk, run_without_space_for_checkpoints_never_starts) {
  const Folder folder;
  const Words words = Material::get().train(folder / "out", {"train.steps=5", "checkpoint.every=1", "checkpoint.keep=3"});
  const Result refused = run_with_free_bytes(words, 1'000'000);
  EXPECT_EQ(refused.code, int(Exit::io)) << output_of(refused);
  EXPECT_NE(refused.err.find("a checkpoint of this run needs "), refused.err.npos) << refused.err;
  EXPECT_NE(refused.err.find("only 1.00 MB is free"), refused.err.npos) << refused.err;
  EXPECT_FALSE(fs::exists(folder / "out/status.json") || fs::exists(folder / "out/metrics.jsonl"));
  const Result warned = run_with_free_bytes(words, 8'000'000);
  EXPECT_EQ(warned.code, 0) << output_of(warned);
  EXPECT_NE(warned.out.find("4 checkpoints of "), warned.out.npos) << warned.out;
  EXPECT_EQ(run_with_free_bytes(words, 80'000'000'000).code, int(Exit::usage)) << "the folder has checkpoints now";
  Words again = words;
  again.push_back("--resume");
  const Result done = run_with_free_bytes(again, 0);
  EXPECT_EQ(done.code, 0) << "nothing is left to save" << output_of(done);
}

TEST(failing_disk, export_without_space_names_a_model_folder) {
  const Folder folder;
  const Result r = run_with_free_bytes({"export-hf", Material::get().trained(), folder / "hf"}, 50'000);
  EXPECT_EQ(r.code, int(Exit::io)) << output_of(r);
  EXPECT_NE(r.err.find("a model folder needs "), r.err.npos) << r.err;
  EXPECT_NE(r.err.find("only 50.0 kB is free"), r.err.npos) << r.err;
  EXPECT_EQ(folder.files(), 0u);
}

}  // namespace gyr::testing::failing_disk_suite
