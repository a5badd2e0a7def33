// SPDX-License-Identifier: BSD-3-Clause
// A run that is stopped and resumed ends with the bits of one that was not: after a planned stop, after SIGKILL at any moment, on one
// rank and on a grid, in float and in bfloat16. On another grid it goes on to rounding.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <random>

#include "regression/material.hpp"

using namespace gyr;
using namespace gyr::testing;
namespace fs = std::filesystem;

namespace {

constexpr int steps = 10;

struct Case {
  const char* name;
  int ranks;
  Words settings;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const Case cases[] = {
    {"one_rank_fp32", 0, {"train.precision=fp32"}},
    {"one_rank_bf16", 0, {"train.precision=bf16"}},
    {"data_x_tensor_fp32", 4, {"train.precision=fp32", "parallel.data=2", "parallel.tensor=2"}},
    {"data_x_tensor_bf16", 4, {"train.precision=bf16", "parallel.data=2", "parallel.tensor=2"}},
    {"data_x_pipeline_fp32", 4, {"train.precision=fp32", "parallel.data=2", "parallel.pipeline=2"}},
    {"data_x_pipeline_bf16", 4, {"train.precision=bf16", "parallel.data=2", "parallel.pipeline=2"}},
};

Words train(const Case& c, const fs::path& folder, int last, bool resume) {
  Words words{"train.steps=" + std::to_string(last), "optimizer.decay_steps=" + std::to_string(steps), "checkpoint.every=1", "checkpoint.keep=3"};
  words.insert(words.end(), c.settings.begin(), c.settings.end());
  if (resume) words.push_back("--resume");
  return Material::get().train(folder, words);
}

}  // namespace

class restart : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(restart, restart, ::testing::ValuesIn(cases), [](const auto& info) { return std::string(info.param.name); });

TEST_P(restart, ten_steps_equal_five_and_five) {
  const Folder whole, parts;
  ASSERT_EQ(run(train(GetParam(), whole.path(), 10, false), {.ranks = GetParam().ranks}).code, 0);
  ASSERT_EQ(run(train(GetParam(), parts.path(), 5, false), {.ranks = GetParam().ranks}).code, 0);
  const Result second = run(train(GetParam(), parts.path(), 10, true), {.ranks = GetParam().ranks});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.out.find("at step 5"), std::string::npos) << second.out;
  expect_same_end(whole.path(), parts.path(), steps);
}

// Each life is killed a random while after a random step was saved, which may be while the next one is; the last life is left alone.
TEST_P(restart, killed_at_any_moment_ends_with_the_same_bits) {
  const Case& c = GetParam();
  const Folder whole;
  const Result uninterrupted = run(train(c, whole.path(), steps, false), {.ranks = c.ranks});
  ASSERT_EQ(uninterrupted.code, 0) << uninterrupted.err;
  const unsigned trials = c.ranks > 0 ? 2 : 3;
  int killed = 0, in_the_middle = 0;
  for (unsigned seed = 1; seed <= trials; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Folder folder;
    int saved = 0;  // the step that the next life waits for
    for (bool done = false; !done;) {
      saved += 1 + int(random() % 4);
      const double delay = uninterrupted.seconds / steps * double(random() % 1000) / 1000;
      std::optional<std::chrono::steady_clock::time_point> seen;
      const auto kill_when = [&] {
        if (!seen && fs::exists(Material::checkpoint(folder.path(), saved))) seen = std::chrono::steady_clock::now();
        return seen && std::chrono::duration<double>(std::chrono::steady_clock::now() - *seen).count() > delay;
      };
      Options options{.ranks = c.ranks};
      if (saved < steps) options.kill_when = kill_when;
      const Result r = run(train(c, folder.path(), steps, true), options);
      if (r.out.find("resumed from") != std::string::npos) in_the_middle += 1;
      if (!r.killed) {
        ASSERT_EQ(r.code, 0) << r.out << r.err;
      }
      killed += r.killed;
      done = !r.killed;
    }
    expect_same_end(whole.path(), folder.path(), steps);
  }
  EXPECT_GE(killed, int(trials));
  EXPECT_GE(in_the_middle, int(trials));
}

// The file is written by one grid and read by another.
TEST(restart, another_grid_goes_on_to_rounding) {
  const Folder whole;
  ASSERT_EQ(run(train(cases[0], whole.path(), steps, false)).code, 0);
  const auto expected = losses(whole.path());
  const Case from_to[][2] = {{cases[0], cases[2]}, {cases[4], cases[0]}, {cases[2], cases[4]}};
  for (const auto& [from, to] : from_to) {
    SCOPED_TRACE(std::string(from.name) + " to " + to.name);
    const Folder folder;
    ASSERT_EQ(run(train(from, folder.path(), 5, false), {.ranks = from.ranks}).code, 0);
    const Result r = run(train(to, folder.path(), steps, true), {.ranks = to.ranks});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("at step 5"), std::string::npos) << r.out;
    const auto series = losses(folder.path());
    ASSERT_EQ(series.size(), expected.size());
    for (const auto& [step, loss] : expected) EXPECT_NEAR(series.at(step), loss, 1e-5 * std::abs(loss)) << step;
  }
}

// Without --resume a run begins at step 1, whatever the folder holds.
TEST(restart, nothing_is_resumed_unasked) {
  const Folder folder;
  ASSERT_EQ(run(train(cases[0], folder.path(), 3, false)).code, 0);
  const Result r = run(train(cases[0], folder.path(), 5, false));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.find("resumed from"), std::string::npos);
  EXPECT_NE(r.out.find("iteration        1/"), std::string::npos) << r.out;
}
