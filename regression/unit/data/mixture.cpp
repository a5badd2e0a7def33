// SPDX-License-Identifier: BSD-3-Clause
// Mixtures of corpora with stages and epoch caps, against a simulation of their definition sample by sample.
#include "src/data/mixing/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/mixing/data_stage.hpp"
#include "src/data/token_writer.hpp"
#include "src/train/data_reading.hpp"

namespace gyr::testing::mixture_suite {
namespace {

using Counts = std::vector<std::int64_t>;
using Picks = std::vector<std::pair<std::int64_t, std::int64_t>>;  // corpus and number of each sample

Picks picks_of(const Mixture& mixture, std::int64_t count) {
  Picks picks;
  for (std::int64_t i = 0; i < count; ++i) picks.emplace_back(mixture.at(i).corpus, mixture.at(i).number);
  return picks;
}

std::vector<double> normalised(std::vector<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& w : weights) w /= sum;
  return weights;
}

// Picks of at most `count` samples by the definition: in a phase, sample k goes to the corpus that maximises
// w max(k, 1) - taken. A phase ends where the normalised weights of the stages change, or where a corpus has provided
// its limit.
Picks simulated(const std::vector<MixtureStage>& stages, const Counts& limits, std::int64_t count) {
  const std::size_t D = limits.size();
  Counts total(D), taken(D);
  std::vector<double> shares;
  Picks picks;
  std::int64_t begin = 0;
  bool changed = true;
  for (std::int64_t i = 0; i < count; ++i) {
    std::size_t stage = stages.size() - 1;
    while (stages[stage].first > i) --stage;
    for (std::size_t s = 1; s < stages.size(); ++s)
      changed = changed || (stages[s].first == i && normalised(stages[s].weights) != normalised(stages[s - 1].weights));
    if (changed) {
      shares = stages[stage].weights;
      for (std::size_t d = 0; d < D; ++d) shares[d] = total[d] < limits[d] ? shares[d] : 0;
      if (std::accumulate(shares.begin(), shares.end(), 0.0) == 0) return picks;
      shares = normalised(shares);
      taken.assign(D, 0), begin = i, changed = false;
    }
    std::size_t best = D;
    const auto lag = [&](std::size_t d) { return shares[d] * std::max(double(i - begin), 1.0) - double(taken[d]); };
    for (std::size_t d = 0; d < D; ++d)
      if (shares[d] > 0 && (best == D || lag(d) > lag(best))) best = d;
    picks.emplace_back(best, total[best]);
    ++taken[best], ++total[best];
    changed = total[best] >= limits[best];
  }
  return picks;
}

struct Draw {
  std::vector<MixtureStage> stages;
  Counts limits;
};

// Dyadic weights, so that rounding decides no pick. About half of the corpora have a limit.
Draw draw_mixture(std::mt19937& random) {
  const std::size_t D = 1 + random() % 5;
  Draw draw;
  for (std::int64_t first = 0; draw.stages.size() < 1 + random() % 4 || draw.stages.empty(); first += 1 + random() % 5000) {
    std::vector<double> weights(D);
    for (double& w : weights) w = double(random() % 4);
    if (std::accumulate(weights.begin(), weights.end(), 0.0) == 0) weights[random() % D] = 1;
    if (!draw.stages.empty() && random() % 4 == 0) weights = draw.stages.back().weights;
    draw.stages.push_back({first, weights});
  }
  for (std::size_t d = 0; d < D; ++d) draw.limits.push_back(random() % 2 ? Mixture::endless : 1 + random() % 4000);
  return draw;
}

}  // namespace

TEST(mixture, blend_gives_the_stated_picks) {
  const auto corpora = [](const std::vector<double>& weights) {
    std::string text;
    for (const auto& pick : picks_of(Mixture({{0, weights}}), 20)) text += char('0' + pick.first);
    return text;
  };
  EXPECT_EQ(corpora({.5, .3, .2}), "01201020100120102010");
}

// Samples are asked for in a random order, with large gaps, as ranks and restarts do.
TEST(mixture, picks_equal_the_simulated_definition) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 16; ++trial) {
    const Draw d = draw_mixture(random);
    const Picks wanted = simulated(d.stages, d.limits, 12000);
    const auto size = std::int64_t(wanted.size());
    const Mixture mixture(d.stages, d.limits), asked(d.stages, d.limits);
    EXPECT_EQ(asked.size_up_to(12000), size) << trial;
    ASSERT_EQ(picks_of(mixture, size), wanted) << trial;
    for (int k = 0; k < 50 && size > 0; ++k) {
      const auto i = std::int64_t(random() % std::uint64_t(size));
      const Mixture restarted(d.stages, d.limits);
      const Blend::Pick pick = (k % 5 ? asked : restarted).at(i);
      ASSERT_EQ(std::pair(pick.corpus, pick.number), wanted[std::size_t(i)]) << trial << ": " << i;
    }
    if (size < 12000) {
      EXPECT_EQ(error_of([&] { mixture.at(size); }).code, Exit::config);
      EXPECT_EQ(error_of([&] { Mixture(d.stages, d.limits).at(size + 12345); }).code, Exit::config);
    }
  }
}

TEST(mixture, counts_equal_the_number_of_picks) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 12; ++trial) {
    const Draw d = draw_mixture(random);
    const Mixture mixture(d.stages, d.limits);
    Counts taken(d.limits.size());
    const std::int64_t size = mixture.size_up_to(8000);
    for (std::int64_t i = 0; i < size; ++i) {
      if (i % 997 == 0) {
        ASSERT_EQ(Mixture(d.stages, d.limits).taken_before(i), taken) << trial << ": " << i;
      }
      const Blend::Pick pick = mixture.at(i);
      ASSERT_EQ(pick.number, taken[std::size_t(pick.corpus)]++);
    }
    EXPECT_EQ(mixture.taken_before(size), taken);
    for (std::size_t c = 0; c < taken.size(); ++c) EXPECT_LE(taken[c], d.limits[c]);
  }
}

TEST(mixture, stage_that_repeats_the_weights_changes_nothing) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 12; ++trial) {
    std::vector<double> weights(1 + random() % 5);
    for (double& w : weights) w = 0.01 + double(random() % 1000) / 999;
    const std::int64_t first = 1 + random() % 2000, second = first + 1 + random() % 1500;
    const Mixture one({{0, weights}}), three({{0, weights}, {first, weights}, {second, weights}});
    EXPECT_EQ(picks_of(one, 4000), picks_of(three, 4000)) << trial;
    EXPECT_TRUE(three.changes(0, 4000).empty());
  }
}

// The lead of a corpus is below one sample. With two corpora, so is its lag; with D corpora, it is below D - 1.
TEST(mixture, each_stage_follows_its_weights) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 30; ++trial) {
    const std::size_t D = 2 + random() % 4;
    std::vector<MixtureStage> stages;
    for (int s = 0; s < 4; ++s) {
      stages.push_back({s == 0 ? 0 : stages.back().first + 1 + std::int64_t(random() % 4000), std::vector<double>(D)});
      for (double& w : stages.back().weights) w = 0.001 + std::pow(double(random() % 1000) / 999, 3);
    }
    const Mixture mixture(stages);
    for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
      const Counts before = mixture.taken_before(stages[s].first), after = mixture.taken_before(stages[s + 1].first);
      const std::vector<double> shares = normalised(stages[s].weights);
      for (std::size_t d = 0; d < D; ++d) {
        const double lead = double(after[d] - before[d]) - shares[d] * double(stages[s + 1].first - stages[s].first);
        EXPECT_LT(lead, 1 + 1e-9);
        EXPECT_GT(lead, -double(D - 1) - 1e-9);
      }
    }
  }
}

TEST(mixture, exhausted_corpus_passes_its_share_on_by_weight) {
  const Mixture mixture({{0, {5, 3, 2}}}, {100, Mixture::endless, Mixture::endless});
  const auto changes = mixture.changes(0, 100000);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].left, Counts{0});
  EXPECT_EQ(changes[0].shares, (std::vector<double>{0, 0.6, 0.4}));
  EXPECT_NEAR(double(changes[0].sample), 200, 2);
  EXPECT_EQ(mixture.at(changes[0].sample - 1).corpus, 0) << "its last sample";
  const Counts counts = mixture.taken_before(changes[0].sample + 1000);
  EXPECT_EQ(counts[0], 100);
  EXPECT_NEAR(double(counts[1]), 60 + 600, 2);
}

TEST(mixture, changes_report_stages_and_the_end) {
  const Mixture mixture({{0, {1, 1}}, {10, {1, 0}}}, {20, 20});
  const auto changes = mixture.changes(0, 1000);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].sample, 10);
  EXPECT_EQ(changes[0].stage, std::optional<std::size_t>(1));
  EXPECT_TRUE(changes[0].left.empty());
  EXPECT_EQ(changes[1].sample, 25) << "5 samples of the first stage and 15 of the second";
  EXPECT_EQ(changes[1].left, Counts{0});
  EXPECT_TRUE(changes[1].shares.empty());
  EXPECT_TRUE(mixture.changes(11, 25).empty());
  EXPECT_EQ(mixture.size_up_to(1000), 25);
  EXPECT_EQ(mixture.size_up_to(7), 7);
}

TEST(mixture, stages_of_a_deck_begin_after_their_tokens) {
  const auto firsts = [](const std::vector<std::string>& entries, std::int64_t seq_length) {
    Counts firsts;
    for (const MixtureStage& stage : mixture_stages(read_stages(entries, 2), seq_length, {7, 7})) firsts.push_back(stage.first);
    return firsts;
  };
  EXPECT_EQ(firsts({"0: .7 .3", "1e3 tokens: .4 .6"}, 10), (Counts{0, 100}));
  EXPECT_EQ(firsts({"1001: .4 .6", "200 samples: 1 0"}, 10), (Counts{0, 101, 200})) << "the first stage has the initial weights";
  EXPECT_EQ(firsts({}, 10), Counts{0});
  EXPECT_EQ(mixture_stages(read_stages({"5 samples : 0 2e1"}, 2), 10, {7, 8})[1].weights, (std::vector<double>{0, 20}));
  EXPECT_EQ(mixture_stages(read_stages({"5:1 2"}, 2), 10, {7, 8})[0].weights, (std::vector<double>{7, 8}));
}

TEST(mixture, malformed_stages_are_refused_with_their_text) {
  for (const char* const entry : {"", "1 2", ": 1 2", "x: 1 2", "-1: 1 2", "1 steps: 1 2", "1 tokens 1 2", "0: 1", "0: 1 2 3", "0: 0 0", "0: -1 2",
                                  "0: 1 y", "nan: 1 2", "0: inf 1", "1e30: 1 2"}) {
    const Error error = error_of([&] { read_stages({entry}, 2); });
    EXPECT_EQ(error.code, Exit::config) << entry;
    EXPECT_NE(std::string(error.what()).find("'" + std::string(entry) + "'"), std::string::npos) << error.what();
  }
  for (const auto& entries : {std::vector<std::string>{"0: 1 1", "0: 1 2"}, {"20: 1 1", "10: 1 2"}, {"11 tokens: 1 1", "2 samples: 1 2"}})
    EXPECT_EQ(error_of([&] { mixture_stages(read_stages(entries, 2), 10, {1, 1}); }).code, Exit::config) << entries[1];
}

// A corpus of `documents` documents of 50 equal tokens.
struct EqualTokens {
  Folder folder;
  std::filesystem::path prefix = folder / "corpus";
  EqualTokens(int documents, std::int32_t token) {
    TokenWriter writer(prefix, 100);
    for (int d = 0; d < documents; ++d) writer.add(std::vector<std::int32_t>(50, token)), writer.end_document();
    writer.finish();
  }
};

TEST(mixture, dataset_reads_what_its_report_states) {
  const EqualTokens a(41, 1), b(21, 2);
  DatasetOptions options;
  options.corpora = {{a.prefix, 3.0}, {b.prefix, 1.0}};
  options.split = "1", options.seq_length = 10;
  options.stages = read_stages({"1000 tokens: 1 3"}, 2), options.max_epochs = {0, 2};
  const Dataset data(options);
  ASSERT_EQ(data.per_epoch(1), 104);
  std::int64_t counts[2][2] = {};
  for (std::int64_t i = 0; i < 600; ++i) ++counts[i >= 100][data.sample(i).tokens[3] - 1];
  EXPECT_EQ(counts[0][1] + counts[1][1], 2 * 104) << "two epochs";
  const auto rows = readings_of(data, 600);
  ASSERT_EQ(rows.size(), 4u);
  for (const StageReading& r : rows) EXPECT_EQ(r.read, counts[r.stage][r.corpus]);
  EXPECT_EQ(rows[3].sum, 2.0);
  EXPECT_EQ(rows[3].share, 0.75);
  const auto lines = change_lines(data, 0, 600);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[1].find("max_epochs"), std::string::npos) << lines[1];
  options.order = SampleOrder::megatron, options.samples = 100;
  EXPECT_EQ(error_of([&] { const Dataset refused(options); }).code, Exit::config);
}

}  // namespace gyr::testing::mixture_suite
