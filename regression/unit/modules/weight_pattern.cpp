// SPDX-License-Identifier: BSD-3-Clause
#include "modules/settings/weight_pattern.hpp"

#include "kernels/base/error.hpp"
#include "regression/support/testing.hpp"

namespace gyr::weight_pattern_suite {
namespace {

TEST(weight_pattern, patterns_match_full_names) {
  EXPECT_TRUE(matches("lm_head*", "lm_head.weight"));
  EXPECT_TRUE(matches("model.layers.*.mamba.*", "model.layers.17.mamba.in_proj.weight"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("**.D", "model.layers.0.mamba.D"));
  EXPECT_TRUE(matches("model.layers.?.mamba.D", "model.layers.1.mamba.D"));
  EXPECT_FALSE(matches("model.layers.1", "model.layers.1.mamba.D"));
  EXPECT_FALSE(matches("model.layers.1.*", "model.layers.11.mamba.D"));
  EXPECT_FALSE(matches("model.layers.?.mamba.D", "model.layers.11.mamba.D"));
  EXPECT_FALSE(matches("mamba", "model.layers.1.mamba.D"));
  EXPECT_FALSE(matches("", "x"));
}

TEST(weight_pattern, misfit_counts_differing_letters) {
  EXPECT_EQ(pattern_distance("lm_haed.weight", "lm_head.weight"), 2);
  EXPECT_EQ(pattern_distance("*.mambo.D", "model.layers.1.mamba.D"), 1);
  EXPECT_EQ(pattern_distance("abc", ""), 3);
  EXPECT_EQ(pattern_distance("", "abc"), 3);
  EXPECT_EQ(pattern_distance("a*c?", "axxxc"), 1);
}

TEST(weight_pattern, unmatched_pattern_error_names_the_nearest_weight) {
  const std::vector<std::string> weights{"model.embed_tokens.weight", "model.layers.0.mamba.D", "lm_head.weight"};
  EXPECT_NO_THROW(check_patterns("key", std::vector<std::string>{"lm*", "*.D"}, weights));
  try {
    check_patterns("optimizer.frozen", std::vector<std::string>{"lm*", "model.layers.*.mambo.*"}, weights);
    ADD_FAILURE() << "a pattern without a match was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::config);
    for (const char* part : {"optimizer.frozen", "'model.layers.*.mambo.*'", "nearest is model.layers.0.mamba.D"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gyr::weight_pattern_suite
