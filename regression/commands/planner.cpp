// SPDX-License-Identifier: BSD-3-Clause
// What a plan says of time on a machine, and the files that it is told of the machine by.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "regression/material.hpp"

using namespace gyr;
using namespace gyr::testing;

namespace {

const Material& material() { return Material::get(); }

const std::string clusters = std::string(GYR_SOURCE_DIR) + "/input/clusters/";

// The number behind a title of the prediction.
double number_in(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? std::stod(match[1]) : -1;
}

TEST(planner, a_plan_on_a_cluster_says_how_long_a_step_takes) {
  const std::string deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-34b.yaml";
  const Words asked{"plan",     deck,  "--ranks", "512", "parallel.tensor=4", "parallel.pipeline=8", "--cluster", clusters + "h100.yaml",
                    "--tokens", "1e12"};
  const Result r = run(asked);
  ASSERT_EQ(r.code, 0) << r.err;
  const double seconds = number_in(r.out, R"(a step +([0-9.e+-]+) s;)"), mfu = number_in(r.out, R"(MFU +([0-9.]+) %)"),
               days = number_in(r.out, R"(training +([0-9.e+-]+) days)"), rate = number_in(r.out, R"(s; ([0-9.e+-]+) tokens/s)");
  EXPECT_GT(seconds, 0) << r.out;
  EXPECT_GT(mfu, 5);
  EXPECT_LT(mfu, 100);
  EXPECT_NEAR(days * 86400 * rate / 1e12, 1, 1e-2);
  Words slower = asked;
  std::replace(slower.begin(), slower.end(), clusters + "h100.yaml", clusters + "a100-selene.yaml");
  EXPECT_GT(number_in(run(slower).out, R"(a step +([0-9.e+-]+) s;)"), 1.5 * seconds) << "an A100 is slower";
  EXPECT_EQ(run({"plan", deck, "--ranks", "64"}).out.find("predicted"), std::string::npos);
}

TEST(planner, what_is_said_of_a_machine_is_checked) {
  const Folder folder;
  const std::string deck = material().deck();
  EXPECT_EQ(run({"plan", deck, "--profile", "x"}).code, int(Exit::usage));
  EXPECT_EQ(run({"plan", deck, "--tokens", "5"}).code, int(Exit::usage));
  EXPECT_EQ(run({"plan", deck, "--cluster", folder / "none.yaml"}).code, int(Exit::missing));
  std::string text = contents(clusters + "h100.yaml");
  const auto line_of = [&](const std::string& word) { return 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(text.find(word)), '\n'); };
  text.replace(text.find("  bf16:"), 7, "  bf61:");
  put_contents(folder / "misspelt.yaml", text);
  const Result misspelt = run({"plan", deck, "--cluster", folder / "misspelt.yaml"});
  EXPECT_EQ(misspelt.code, int(Exit::config));
  EXPECT_NE(misspelt.err.find(fmt::format("misspelt.yaml:{}", line_of("  bf61:"))), std::string::npos) << misspelt.err;
  EXPECT_NE(misspelt.err.find("bf16"), std::string::npos) << misspelt.err;
  put_contents(folder / "small.yaml", std::regex_replace(contents(clusters + "h100.yaml"), std::regex("nodes: 0"), "nodes: 1"));
  const Result small = run({"plan", deck, "train.global_batch_size=16", "--ranks", "16", "--cluster", folder / "small.yaml"});
  EXPECT_EQ(small.code, int(Exit::config)) << small.out;
  EXPECT_NE(small.err.find("16 ranks on the 1 x 8 devices"), std::string::npos) << small.err;
  put_contents(folder / "profile", "kernel precision flops bytes seconds\nadd fp32 1 2 three\n");
  const Result profile = run({"plan", deck, "--cluster", clusters + "h100.yaml", "--profile", folder / "profile"});
  EXPECT_EQ(profile.code, int(Exit::config));
  EXPECT_NE(profile.err.find("profile:2"), std::string::npos) << profile.err;
}

// What the program measures it can read, and a step that it predicts from that is of the length of one that it takes.
TEST(planner, a_machine_is_measured_and_planned_with) {
  const Folder folder;
  const std::string deck = material().deck();
  const Result probe = run({"probe", "--out", folder / "here.yaml"}, {.ranks = 2});
  ASSERT_EQ(probe.code, 0) << probe.err;
  EXPECT_NE(probe.out.find("per_node: 2"), std::string::npos) << probe.out;
  EXPECT_EQ(probe.out, contents(folder / "here.yaml"));
  const Result profile = run({"profile", deck, "--out", folder / "kernels", "parallel.tensor=2"}, {.ranks = 2});
  ASSERT_EQ(profile.code, 0) << profile.err;
  const Result plan = run({"plan", deck, "--ranks", "2", "parallel.tensor=2", "--cluster", folder / "here.yaml", "--profile", folder / "kernels"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("kernels as they were measured"), std::string::npos) << plan.out;
  EXPECT_GT(number_in(plan.out, R"(a step +([0-9.e+-]+) s;)"), 0) << plan.out;
}

}  // namespace
