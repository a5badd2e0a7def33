// SPDX-License-Identifier: BSD-3-Clause
// Generated layer patterns: each layer type gets its ratio of the layers, its layers are evenly spaced, and impossible
// ratios are refused.
#include "modules/settings/hybrid_pattern.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"

namespace gyr::hybrid_pattern_suite {
namespace {

// Mamba-2-Hybrid 8B: Waleffe et al. 2024, arXiv 2406.07887, in the notation of Megatron-LM.
const std::string published = "M-M-M--M-M*-M-M-M-M--M*-M-M-M-M-M*--M-M-M-M-M*-M--M-M-M-";

RunConfig run_of(const std::string& model, std::string* effective = nullptr) {
  Deck deck = Deck::parse("model: {" + model + "}\n", "test.yaml");
  RunConfig run = read_run_config(deck);
  deck.finish();
  if (effective) *effective = deck.effective();
  return run;
}

std::string refusal(const std::string& model) {
  try {
    run_of(model);
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::config) << e.what();
    return e.what();
  }
  ADD_FAILURE() << model << " was not refused";
  return "";
}

struct Draw {
  Index layers;
  double attention, mlp;
};

// A random number of layers, and random ratios whose layers fit into it.
Draw draw_of(std::mt19937& random) {
  std::uniform_real_distribution<double> fraction(0, 1);
  for (;;) {
    const Draw d{1 + Index(random() % 300), random() % 8 ? fraction(random) : 0, random() % 8 ? fraction(random) : 0};
    if (std::nearbyint(double(d.layers) * d.attention) + std::nearbyint(double(d.layers) * d.mlp) <= double(d.layers)) return d;
  }
}

// Lengths of the runs of other symbols before the first `symbol` and between two of them.
std::vector<Index> gaps_of(const std::string& pattern, char symbol) {
  std::vector<Index> gaps;
  Index gap = 0;
  for (const char layer : pattern) {
    if (layer == symbol) gaps.push_back(std::exchange(gap, 0));
    else ++gap;
  }
  return gaps;
}

void expect_even(const std::vector<Index>& gaps) {
  if (gaps.empty()) return;
  const auto [least, most] = std::minmax_element(gaps.begin(), gaps.end());
  EXPECT_LE(*most - *least, 1);
}

TEST(hybrid_pattern, mamba_2_hybrid_8b_matches_published_pattern) {
  EXPECT_EQ(hybrid_pattern(56, 0.08, 0.5), published);
  EXPECT_EQ(run_of("layers: 56, attention_ratio: 0.08, mlp_ratio: 0.5").model.pattern, published);
}

TEST(hybrid_pattern, layer_types_get_their_ratio_and_even_spacing) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int trial = 0; trial < 2000; ++trial) {
    const Draw d = draw_of(random);
    const std::string pattern = hybrid_pattern(d.layers, d.attention, d.mlp);
    SCOPED_TRACE(fmt::format("layers {}, ratios {} and {}: {}", d.layers, d.attention, d.mlp, pattern));
    ASSERT_EQ(Index(pattern.size()), d.layers);
    EXPECT_EQ(pattern.find_first_not_of("M*-"), pattern.npos);
    EXPECT_EQ(std::count(pattern.begin(), pattern.end(), '*'), Index(std::nearbyint(double(d.layers) * d.attention)));
    EXPECT_EQ(std::count(pattern.begin(), pattern.end(), '-'), Index(std::nearbyint(double(d.layers) * d.mlp)));
    std::vector<Index> between = gaps_of(pattern, '*');
    if (!between.empty()) between.push_back(Index(pattern.size() - 1 - pattern.rfind('*')));
    expect_even(between);
    std::string rest = pattern;
    std::erase(rest, '*');
    expect_even(gaps_of(rest, '-'));
  }
}

TEST(hybrid_pattern, extreme_ratios_give_the_expected_patterns) {
  EXPECT_EQ(hybrid_pattern(3, 0, 0), "MMM");
  EXPECT_EQ(hybrid_pattern(3, 1, 0), "***");
  EXPECT_EQ(hybrid_pattern(3, 0, 1), "---");
  EXPECT_EQ(hybrid_pattern(5, 0.5, 0).size(), 5u);
  const std::string halves = hybrid_pattern(5, 0.5, 0.5);  // 2.5 layers of each type round to 2
  EXPECT_EQ(std::count(halves.begin(), halves.end(), '*'), 2);
  EXPECT_EQ(std::count(halves.begin(), halves.end(), '-'), 2);
}

TEST(hybrid_pattern, impossible_layer_counts_and_ratios_are_refused) {
  const auto names = [](const std::string& model, std::initializer_list<const char*> parts) {
    const std::string message = refusal(model);
    for (const char* part : parts) EXPECT_NE(message.find(part), message.npos) << message;
  };
  names("layers: 10, attention_ratio: 0.6, mlp_ratio: 0.5",
        {"model.attention_ratio", "model.mlp_ratio", "6 attention", "5 MLP", "model.layers = 10"});
  for (const char* ratio : {"-0.1", "1.1", "nan", "inf"}) {
    names(fmt::format("layers: 10, attention_ratio: {}", ratio), {"model.attention_ratio"});
    names(fmt::format("layers: 10, mlp_ratio: {}", ratio), {"model.mlp_ratio"});
  }
  names("layers: -1", {"model.layers"});
  names("layers: 16385", {"model.layers"});
  names("attention_ratio: 0.1", {"test.yaml:1: model.attention_ratio = 0.1", "give model.layers"});
  names("pattern: M*, mlp_ratio: 0.5", {"model.mlp_ratio = 0.5", "give model.layers"});
  names("pattern: MM, layers: 3", {"model.pattern = MM", "model.layers = 3", "leave out"});
}

TEST(hybrid_pattern, effective_deck_reads_back_unchanged) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int trial = 0; trial < 50; ++trial) {
    const Draw d = draw_of(random);
    std::string first;
    const RunConfig run = run_of(fmt::format("layers: {}, attention_ratio: {}, mlp_ratio: {}", d.layers, d.attention, d.mlp), &first);
    EXPECT_EQ(run.model.pattern, hybrid_pattern(d.layers, d.attention, d.mlp));
    Deck again = Deck::stored(first, "stored");
    EXPECT_EQ(read_run_config(again).model.pattern, run.model.pattern) << first;
    EXPECT_EQ(again.effective(), first);
  }
  EXPECT_EQ(run_of("pattern: M x 4, layers: 4").model.pattern, "MMMM") << "model.layers agrees with the length of model.pattern";
}

}  // namespace
}  // namespace gyr::hybrid_pattern_suite
