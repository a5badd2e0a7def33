// SPDX-License-Identifier: BSD-3-Clause
// Whichever call of a save the disk refuses, and why: the run ends with one message that names the file, what was saved before is whole, the
// new checkpoint is whole or not there, and the next attempt ends with the bits of a run whose disk did not fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "regression/material.hpp"
#include "regression/trials.hpp"

using namespace gyr;
using namespace gyr::testing;
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
    EXPECT_EQ(run(train(whole.path(), steps, false)).code, 0);
    EXPECT_EQ(run(train(before.path(), saved, false)).code, 0);
  }
  Folder whole, before;
};

long number_after(const std::string& text, const std::string& words) {
  const auto at = text.find(words);
  return at == std::string::npos ? 0 : std::atol(text.c_str() + at + words.size());
}

// The calls of one more step and its save.
long calls_of_a_save(const Reference& reference) {
  const Folder folder;
  fs::copy(reference.before.path(), folder.path(), fs::copy_options::recursive);
  const Result r = run(train(folder.path(), saved + 1, true), {.env = {{"LD_PRELOAD", GYR_FAILING_CALLS}}});
  EXPECT_EQ(r.code, 0) << r.err;
  return number_after(r.err, "calls that could fail: ");
}

void fail_call(const Reference& reference, long call, int error) {
  SCOPED_TRACE(fmt::format("call {} fails with {}", call, std::strerror(error)));
  const Folder folder;
  fs::copy(reference.before.path(), folder.path(), fs::copy_options::recursive);
  const Result r =
      run(train(folder.path(), saved + 1, true),
          {.env = {{"LD_PRELOAD", GYR_FAILING_CALLS}, {"GYR_FAILING_CALL", std::to_string(call)}, {"GYR_FAILING_ERROR", std::to_string(error)}}});
  EXPECT_NE(r.err.find("failing call: "), std::string::npos) << r.err;
  const std::string& said = r.code == 0 ? r.out : r.err;  // an older checkpoint that cannot be removed does not end the run
  EXPECT_TRUE(r.code == int(Exit::io) || (r.code == 0 && said.find("cannot be removed") != std::string::npos)) << r.code << r.out << r.err;
  EXPECT_NE(said.find(std::strerror(error)), std::string::npos) << said;
  EXPECT_NE(said.find("/checkpoints"), std::string::npos) << said;
  for (const int step : {saved - 1, saved, saved + 1}) {
    const fs::path path = Material::checkpoint(folder.path(), step);
    if (step > saved && !fs::exists(path)) continue;
    EXPECT_EQ(run({"info", path, "--check"}).code, 0) << path;
  }
  const Result next = run(train(folder.path(), steps, true));
  ASSERT_EQ(next.code, 0) << next.out << next.err;
  expect_same_end(reference.whole.path(), folder.path(), steps);
}

// A call of a save, in the order in which they were made.
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

// Number of the last call of this kind before `end`; -1 where there is none.
template <class Fits>
long last_call(const std::vector<Call>& calls, Fits&& fits, std::size_t end) {
  for (std::size_t i = std::min(end, calls.size()); i-- > 0;)
    if (fits(calls[i])) return long(i);
  return -1;
}

bool writes(const Call& c) { return c.what == "write" || c.what == "pwrite"; }

const int reasons[] = {EIO, ENOSPC, EDQUOT, ESTALE};

// So many of them, evenly, the last one included; 0: all.
void fail_calls(long some) {
  const Reference reference;
  const long calls = calls_of_a_save(reference);
  ASSERT_GT(calls, 10);
  Trials trials("call of a save refused by the disk (EIO, ENOSPC, EDQUOT, ESTALE)");
  for (long call = calls; call > 0; call -= some > 0 ? calls / some : 1) trials.attempt([&] { fail_call(reference, call, reasons[call % 4]); });
}

}  // namespace

// A machine that loses its power keeps what was synced and nothing else. Every rename gives a name to what is on disk, the folder included,
// and is itself on disk before anything older is renamed away or the run goes on.
TEST(failing_disk, a_name_is_given_to_what_is_on_disk_and_is_itself_brought_there) {
  for (const bool async : {false, true})
    for (const int ranks : {0, 4}) {
      SCOPED_TRACE(fmt::format("{} ranks, async {}", ranks, async));
      const Folder folder, beside;
      const fs::path log = beside / "calls";
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
        // The file, or each file of the folder, is synced behind its last write; the folder behind its last file.
        std::map<std::string, long> written;
        for (std::size_t w = 0; w < i; ++w)
          if (writes(calls[w]) && (calls[w].path == name.path || parent(calls[w].path) == name.path)) written[calls[w].path] = long(w);
        EXPECT_GE(written.size(), is_checkpoint ? 1u + unsigned(std::max(1, ranks)) : 1u);  // an index or manifest, and shards
        for (const auto& [path, last] : written) {
          // What was written under a temporary name inside a folder got its own before.
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
        // The name itself is on disk before the next file or folder of the folder of checkpoints gets one.
        std::size_t next = i + 1;
        while (next < calls.size() && !(calls[next].what == "rename" && parent(calls[next].path) == parent(name.to))) ++next;
        EXPECT_GT(last_call(
                      calls, [&](const Call& c) { return c.what == "fsync" && c.path == parent(name.to); }, next),
                  long(i));
      }
      EXPECT_EQ(checkpoints, 3);
      EXPECT_GT(renames, 2 * 3);  // manifests, `latest`
    }
}

TEST(failing_disk, a_refused_call_loses_nothing) { fail_calls(8); }
TEST(every_failing_call, loses_nothing) { fail_calls(0); }
