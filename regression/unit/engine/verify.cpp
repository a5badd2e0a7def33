// SPDX-License-Identifier: BSD-3-Clause
// Comparison of a layout with one rank: a value that deviates beyond its limit must be detected, and a smaller
// deviation accepted.
#include <cmath>
#include <limits>
#include <random>

#include "regression/support/testing.hpp"
#include "src/verify/random_data.hpp"
#include "src/verify/steps.hpp"

namespace gyr::testing::verify_suite {
namespace {

const std::vector<std::string> names{"model.embed_tokens.weight", "model.layers.0.mamba.A_log", "model.layers.3.mamba.A_log",
                                     "model.layers.1.mlp.down_proj.weight", "model.layers.1.mamba.dt_bias"};

StepOutcome random_outcome(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  StepOutcome o;
  o.result.tokens = 17, o.result.loss = 3 + std::abs(normal(random));
  double squares = 0;
  for (const std::string& name : names) {
    auto& gradient = o.gradients[name];
    for (int i = 0; i < 50; ++i) gradient.push_back(normal(random)), squares += gradient.back() * gradient.back();
  }
  o.result.gradient_norm = std::sqrt(squares);
  return o;
}

bool all_hold(const std::vector<Law>& laws) {
  return std::all_of(laws.begin(), laws.end(), [](const Law& law) { return law.holds(); });
}

std::string name_of(const std::string& weight) {
  const std::string kind = kind_of(weight);
  return kind.substr(0, kind.find(".weight"));
}

// Names of the violated laws.
std::string broken(const std::vector<Law>& laws) {
  std::string names;
  for (const Law& law : laws)
    if (!law.holds()) names += law.what + ";";
  return names;
}

TEST(verify, equal_outcomes_satisfy_every_law) {
  const StepOutcome one = random_outcome(1);
  for (const DType dtype : {DType::f64, DType::f32}) {
    const auto laws = laws_of(one, one, 2, 2, dtype);
    EXPECT_EQ(laws.size(), 3u + 4u);  // the same weight of several layers is one law
    EXPECT_TRUE(all_hold(laws));
    EXPECT_TRUE(within_limits(errors_of(one, one), dtype));
  }
}

// Changes one element of one gradient by half of its limit or by twice its limit.
TEST(verify, wrong_gradient_violates_only_its_own_law) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const StepOutcome one = random_outcome(seed);
    for (const DType dtype : {DType::f64, DType::f32})
      for (const std::string& name : names)
        for (const double part : {0.5, 2.0}) {
          StepOutcome many = one;
          double length = 0;
          for (const double x : one.gradients.at(name)) length += x * x;
          many.gradients[name][seed] += part * limit_of(dtype, name) * (std::sqrt(length) + 0.01 * one.result.gradient_norm);
          const auto laws = laws_of(one, many, 2, 2, dtype);
          EXPECT_EQ(broken(laws), part < 1 ? "" : name_of(name) + ";") << seed << " " << name << " " << part;
          EXPECT_EQ(within_limits(errors_of(one, many), dtype), part < 1);
        }
  }
}

TEST(verify, float_limit_is_doubled_for_dt_bias) {
  EXPECT_EQ(limit_of(DType::f64, "model.layers.0.mamba.A_log"), 1e-12);
  EXPECT_EQ(limit_of(DType::f32, "model.layers.0.mamba.D"), 1e-5);
  EXPECT_EQ(limit_of(DType::f32, "model.layers.0.mamba.dt_bias"), 2e-5);
  EXPECT_EQ(kind_of("model.layers.13.mamba.in_proj.weight"), "mamba.in_proj.weight");
  EXPECT_EQ(kind_of("model.final_layernorm.weight"), "model.final_layernorm.weight");
}

TEST(verify, loss_norm_count_and_nan_errors_are_detected) {
  const StepOutcome one = random_outcome(3);
  const auto changed = [&](auto&& change) {
    StepOutcome many = one;
    change(many);
    return broken(laws_of(one, many, 2, 2, DType::f64));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(changed([](StepOutcome& o) { o.result.loss *= 1 + 1e-11; }), "loss;");
  EXPECT_EQ(changed([&](StepOutcome& o) { o.result.loss = nan; }), "loss;");
  EXPECT_EQ(changed([](StepOutcome& o) { o.result.gradient_norm *= 1 - 1e-11; }), "gradient norm;");
  EXPECT_EQ(changed([&](StepOutcome& o) { o.result.gradient_norm = nan; }), "gradient norm;");
  EXPECT_EQ(changed([](StepOutcome& o) { o.result.tokens += 1; }), "loss;");
  EXPECT_EQ(changed([&](StepOutcome& o) { o.gradients[names[0]][0] = nan; }), name_of(names[0]) + ";");
  EXPECT_EQ(changed([&](StepOutcome& o) { o.gradients[names[0]].pop_back(); }), name_of(names[0]) + ";");
  EXPECT_EQ(changed([&](StepOutcome& o) { o.gradients.erase(names[0]); }), "loss;" + name_of(names[0]) + ";");
  EXPECT_EQ(broken(laws_of(one, one, 2, 2 + 1e-11, DType::f64)), "loss after the update;");
  EXPECT_EQ(broken(laws_of(one, one, 2, nan, DType::f64)), "loss after the update;");
}

TEST(verify, bf16_error_may_match_single_rank_rounding) {
  const StepOutcome exact = random_outcome(4);
  const auto off_by = [&](double factor, std::uint64_t seed) {
    StepOutcome o = exact;
    const StepOutcome noise = random_outcome(seed);
    for (auto& [name, gradient] : o.gradients)
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += factor * noise.gradients.at(name)[i];
    return o;
  };
  const StepOutcome one = off_by(0.01, 5);
  EXPECT_TRUE(within_limits(rounding_of(exact, one, off_by(0.01 * 0.7 * limit_in_bf16.ratio, 6))));
  EXPECT_FALSE(within_limits(rounding_of(exact, one, off_by(0.01 * 1.4 * limit_in_bf16.ratio, 6))));
  StepOutcome longer = one;
  longer.result.gradient_norm *= 1 + 1.1 * limit_in_bf16.norm;
  EXPECT_FALSE(within_limits(rounding_of(exact, one, longer)));
}

RunConfig run_of(const std::string& order, bool separate) {
  RunConfig run{};
  run.model.vocab_size = 11, run.train.seq_length = 40;
  run.data.order = order, run.data.separate = separate;
  return run;
}

TEST(verify, random_samples_match_the_deck_settings) {
  for (const bool separate : {false, true})
    for (const char* order : {"shuffled", "documents"}) {
      const RunConfig run = run_of(order, separate);
      std::set<Index> counts;
      bool padded = false;
      for (Index number = 0; number < 12; ++number) {
        const Sample s = random_sample(run, number), again = random_sample(run, number);
        EXPECT_EQ(s.tokens, again.tokens);
        ASSERT_EQ(s.tokens.size(), 41u);
        ASSERT_EQ(s.positions.size(), separate ? 41u : 0u);
        Index documents = 1;
        for (std::size_t t = 0; t < s.tokens.size(); ++t) {
          EXPECT_TRUE(s.tokens[t] >= 0 && s.tokens[t] < 11);
          if (!separate || t == 0) continue;
          EXPECT_TRUE(s.positions[t] == 0 || s.positions[t] == s.positions[t - 1] + 1);
          if (s.positions[t] != 0) continue;
          ++documents;
          EXPECT_EQ(s.learned[t], 0);
        }
        EXPECT_EQ(documents > 1, separate);
        counts.insert(std::count(s.learned.begin(), s.learned.end(), 1));
        padded = padded || (s.tokens[40] == 0 && s.tokens[39] == 0 && s.learned[40] == 0 && s.learned[39] == 0);
      }
      EXPECT_GT(counts.size(), 4u);  // samples have different label counts
      EXPECT_EQ(padded, order == std::string("documents"));
    }
}

}  // namespace
}  // namespace gyr::testing::verify_suite
