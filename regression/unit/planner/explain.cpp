// SPDX-License-Identifier: BSD-3-Clause
// Reports of a plan besides the step time: duration, energy, error bars and the time to save a checkpoint.
#include <cmath>

#include "regression/planner/random_run.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/commands/cluster_report.hpp"
#include "src/commands/plan_report.hpp"
#include "src/commands/search_report.hpp"
#include "src/planner/machine/run_islands.hpp"

namespace gyr::testing::explain_suite {
namespace {

// A random cluster with room for 64 ranks; every other one consists of two islands of different devices.
Cluster drawn_cluster(Dice& dice, bool islands) {
  Cluster c = random_cluster(dice);
  c.nodes = 0;
  if (!islands) return c;
  for (int i = 0; i < 2; ++i) {
    c.parts.push_back(random_cluster(dice));
    c.parts.back().nodes = dice.between(8, 20), c.parts.back().per_node = dice.between(4, 8);
  }
  return c;
}

TEST(explain, energy_is_watts_times_devices_times_time) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 200; ++i) {
    const Cluster c = drawn_cluster(dice, i % 2 == 1);
    const int ranks = dice.between(1, 64);
    const double tokens = dice.real(1e6, 1e13), rate = dice.real(1e2, 1e8);
    double joules = 0;
    for (int rank = 0; rank < ranks; ++rank) joules += c.island_of(rank).device.watts * tokens / rate;
    const TrainingCost cost = training_cost(tokens, rate, ranks, c);
    EXPECT_DOUBLE_EQ(cost.seconds, tokens / rate);
    EXPECT_NEAR(cost.joules / joules, 1, 1e-9) << ranks << " ranks";
  }
  Cluster unknown = random_cluster(dice);
  unknown.device.watts = 0;
  EXPECT_EQ(training_cost(1e9, 1e3, 4, unknown).joules, 0);
}

TEST(explain, price_is_device_hours_times_price) {
  Dice dice(seed_of_run());
  Cluster c = drawn_cluster(dice, true);
  EXPECT_EQ(training_cost(3.6e9, 1e3, 30, c).price, 0) << "no price is known";
  c.parts[0].device.price = 2, c.parts[1].device.price = 3;
  double prices = 0;
  for (int rank = 0; rank < 30; ++rank) prices += c.island_of(rank).device.price;
  EXPECT_NEAR(training_cost(3.6e9, 1e3, 30, c).price, 1000 * prices, 1e-6) << "1000 hours";
  c.parts[0].device.currency = c.parts[1].device.currency = "EUR";
  EXPECT_EQ(money_text(161280, c), "161 k EUR");
  c.parts[1].device.currency = "USD";
  EXPECT_EQ(c.price(int(c.devices())), 0) << "prices in two currencies have no sum";
}

TEST(explain, save_time_follows_from_writing_nodes) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 40; ++i) {
    Drawn d = draw(dice);
    Cluster c = drawn_cluster(dice, false);
    d.run.checkpoint.files = dice.one_of<std::string>({"single", "node", "rank"});
    const double nodes = d.run.checkpoint.files == "single" ? 1 : std::ceil(double(d.layout.ranks()) / double(c.per_node));
    const double bandwidth = c.storage > 0 ? c.storage : 1e9;
    EXPECT_NEAR(save_seconds(d.run, d.layout, c) * bandwidth * nodes / checkpoint_bytes(d.run, d.layout), 1, 1e-12);
    EXPECT_EQ(save_text(d.run, d.layout, c).find("assumption") != std::string::npos, c.storage == 0);
  }
}

TEST(explain, error_bar_is_the_largest_judged_error) {
  Dice dice(seed_of_run());
  Drawn d = draw(dice);
  Cluster c;
  d.run.train.seq_length = 4096;
  EXPECT_EQ(error_bar(d.run, 1, c), "");
  EXPECT_NE(error_text(d.run, 1, c).find("have not been compared"), std::string::npos);
  c.errors = {0.027, 0, "17 steps", ""};
  EXPECT_EQ(error_bar(d.run, 1, c), " ± 25 %") << "published steps are those of other programs";
  EXPECT_TRUE(error_text(d.run, 1, c).starts_with("2.7 % on published steps of other programs (17 steps); not judged on steps of this program"))
      << error_text(d.run, 1, c);
  EXPECT_EQ(error_text(d.run, 1, c).find("several GPUs"), std::string::npos);
  EXPECT_NE(error_text(d.run, 2, c).find("not judged on several GPUs"), std::string::npos);
  c.errors.measured = 0.24, c.errors.measured_steps = "2 steps";
  EXPECT_EQ(error_bar(d.run, 1, c), " ± 24 %");
  EXPECT_EQ(error_bar(d.run, 2, c), " ± 25 %") << "no step on several ranks was measured";
  c.errors.measured = 0.31;
  EXPECT_EQ(error_bar(d.run, 2, c), " ± 31 %");
  d.run.train.seq_length = 4097;
  EXPECT_EQ(error_bar(d.run, 1, c), "") << "longer sequences were not judged";
  EXPECT_TRUE(error_text(d.run, 1, c).starts_with("none: not judged on sequences of more than 4096 tokens")) << error_text(d.run, 1, c);
}

// The digits of the days are those that the error determines.
TEST(explain, days_have_the_digits_of_their_error) {
  Dice dice(seed_of_run());
  Drawn d = draw(dice);
  Cluster c;
  d.run.train.seq_length = 4096;
  TrainingCost cost{};
  cost.seconds = 12.3456 * 86400;
  EXPECT_EQ(days_text(d.run, 1, c, cost), "12.35");
  c.errors = {0.027, 0, "17 steps", ""};
  EXPECT_EQ(days_text(d.run, 1, c, cost), "12.3 ± 3.1") << "an estimate of 25 %";
  cost.seconds *= 100;
  EXPECT_EQ(days_text(d.run, 1, c, cost), "1235 ± 309");
  c.errors.measured = 0.112;
  EXPECT_EQ(days_text(d.run, 1, c, cost), "1235 ± 138");
}

// The printed parts of a difference of two step times add up to the printed difference.
TEST(explain, parts_of_a_difference_add_up) {
  Dice dice(seed_of_run());
  Drawn d = draw(dice);
  SearchResult result;
  for (int i = 0; i < 300; ++i) {
    FoundLayout& f = result.best.emplace_back();
    Prediction& p = f.prediction;
    const double scale = std::pow(10, dice.between(-5, 1));
    p.compute = 10 + scale * dice.real(0, 1), p.transfers = scale * dice.real(0, 1), p.copies = dice.coin() ? 0 : scale * dice.real(0, 1);
    p.buckets = scale * dice.real(0, 1), p.messages = scale * dice.real(0, 1);
    p.seconds = p.compute + p.transfers + p.copies + p.buckets + p.messages;
  }
  std::sort(result.best.begin(), result.best.end(), [](const auto& a, const auto& b) { return a.prediction.seconds < b.prediction.seconds; });
  const auto rows = ranking_rows(d.run, d.layout.ranks(), random_cluster(dice), result);
  ASSERT_EQ(rows.size(), result.best.size());
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::string& text = rows[i].back();
    std::istringstream words(text.substr(text.find('=') + 1));
    double sum = 0, total = std::stod(text);
    int parts = 0;
    for (std::string word; words >> word;)
      if (word[0] == '+' || (word[0] == '-' && word.size() > 1)) sum += std::stod(word), ++parts;
    EXPECT_NEAR(sum, total, 1e-6 * std::max(1.0, std::abs(total))) << text;
    EXPECT_GT(parts, 0) << text;
  }
}

// errors.measured of h200.yaml is the larger error of the two steps of this program that were timed on an H200
// (regression/bench/README.md): 2 x 4096 tokens, two micro-batches of one sequence.
TEST(explain, error_of_h200_equals_that_of_timed_steps) {
  const Cluster c = read_cluster(GYR_SOURCE_DIR "/input/clusters/h200.yaml");
  double largest = 0;
  for (const auto& [name, rate] : {std::pair{"falcon-h1-0.5b", 62078.0}, {"falcon-h1-1.5b", 35054.0}}) {
    Deck deck = Deck::read(fmt::format("{}/input/{}.yaml", GYR_SOURCE_DIR, name),
                           std::vector<std::string>{"train.global_batch_size=2", "train.micro_batch_size=1", "train.seq_length=4096",
                                                    "train.precision=bf16", "parallel.tensor=1", "parallel.pipeline=1"});
    const RunConfig run = on_cluster(read_run_config(deck), c, 1);
    const Layout layout = layout_of(run, 1);
    const EngineConfig config = engine_config(run, layout);
    const double seconds = predict(StagePlans(config, layout), config, layout, c).seconds, measured = 2 * 4096 / rate;
    RecordProperty(name, fmt::format("{:.4f}", seconds / measured - 1));
    largest = std::max(largest, std::abs(seconds / measured - 1));
  }
  EXPECT_NEAR(100 * largest, 100 * c.errors.measured, 0.5);
}

}  // namespace
}  // namespace gyr::testing::explain_suite
