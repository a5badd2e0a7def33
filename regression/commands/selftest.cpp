// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon selftest: healthy ranks pass, pretended faults are named with their hosts, and its files are checked.
#include <gtest/gtest.h>

#include "regression/support/material.hpp"

namespace gyr::testing::selftest_suite {
namespace {

const Words quick{"selftest", "--megabytes", "4"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(selftest, healthy_ranks_pass_and_faulty_ones_are_named) {
  const Folder folder;
  const std::string file = folder / "found.json";
  const Result healthy = run(with(quick, {"--seconds", "60", "--out", file, "--folder", folder.path()}), {.ranks = 4});
  ASSERT_EQ(healthy.code, 0) << output_of(healthy);
  EXPECT_NE(healthy.out.find("4 ranks on 1 host: memory, GEMMs, 6 exchanges in pairs"), std::string::npos) << healthy.out;
  for (const char* fault : {"wrong_memory:2", "wrong_bit:1", "wrong_link:3", "dead_link:0"}) {
    const Result r = run(with(quick, {"--fault", fault, "--seconds", std::string(fault).starts_with("dead") ? "2" : "60"}), {.ranks = 4});
    EXPECT_EQ(r.code, int(Exit::device)) << fault << output_of(r);
    const std::string rank(1, std::string(fault).back());
    EXPECT_NE(r.out.find("\n   " + rank + "  "), std::string::npos) << fault << r.out;
    EXPECT_NE(r.err.find("the self-test blames 1 finding on "), std::string::npos) << fault << r.err;
  }
  const Result again = run(with(quick, {"--seconds", "60", "--against", file}), {.ranks = 2});
  EXPECT_TRUE(again.code == 0 || again.out.find(", earlier ") != std::string::npos) << output_of(again);
}

TEST(selftest, wrong_options_are_refused) {
  const Folder folder;
  put_contents(folder / "x.json", "{}");
  for (const auto& [words, code] : std::initializer_list<std::pair<Words, Exit>>{{{"--fault", "wrong_bit:1"}, Exit::usage},
                                                                                 {{"--fault", "odd:0"}, Exit::usage},
                                                                                 {{"--out", folder / "x.json"}, Exit::usage},
                                                                                 {{"--against", folder / "x.json"}, Exit::data},
                                                                                 {{"--folder", folder / "none"}, Exit::missing},
                                                                                 {{"--seconds", "0"}, Exit::usage}}) {
    const Result r = run(with(quick, words));
    EXPECT_EQ(r.code, int(code)) << words.back() << output_of(r);
  }
}

}  // namespace
}  // namespace gyr::testing::selftest_suite
