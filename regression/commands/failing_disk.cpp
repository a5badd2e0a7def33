// SPDX-License-Identifier: BSD-3-Clause
// Whichever call of a save the disk refuses, and why: the run ends with one message that names the file, what was saved before is whole, the
// new checkpoint is whole or not there, and the next life ends with the bits of a run whose disk did not fail.
#include <gtest/gtest.h>

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
  const Result r = run(train(folder.path(), saved + 1, true), {.env = {{"LD_PRELOAD", GYR_FAILING_CALLS},
                                                                       {"GYR_FAILING_CALL", std::to_string(call)},
                                                                       {"GYR_FAILING_ERROR", std::to_string(error)}}});
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

TEST(failing_disk, a_refused_call_loses_nothing) { fail_calls(8); }
TEST(every_failing_call, loses_nothing) { fail_calls(0); }
