// SPDX-License-Identifier: BSD-3-Clause
// Token sampling. Frequencies are softmax(logits / temperature) over the tokens that --top-k and --top-p keep. Every
// sequence has its own random stream. Ties at a limit keep the lower token.
#include <set>

#include "regression/support/cases.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"

namespace gyr::testing::sampling_suite {
namespace {

const std::vector<double> logits{0.3, 2.1, -1.2, 1.4, 0.9, -0.4, 2.0, -3.0, 0.0, 1.1};

// Expected probabilities by definition: keep the k most likely tokens, then the shortest prefix of these with at least
// p of their mass, and normalize.
std::vector<double> expected(const std::vector<double>& x, double temperature, Index k, double p) {
  std::vector<std::pair<double, std::size_t>> sorted;
  for (std::size_t v = 0; v < x.size(); ++v) sorted.push_back({-std::exp(x[v] / temperature), v});
  std::sort(sorted.begin(), sorted.end());
  if (k > 0) sorted.resize(std::min<std::size_t>(k, sorted.size()));
  double all = 0, kept = 0;
  for (const auto& [mass, token] : sorted) all -= mass;
  std::size_t count = 0;
  while (count < sorted.size() && (count == 0 || kept < p * all * (1 - 1e-12))) kept -= sorted[count++].first;
  std::vector<double> probability(x.size(), 0);
  for (std::size_t i = 0; i < count; ++i) probability[sorted[i].second] = -sorted[i].first / kept;
  return probability;
}

// Chi-square of counts against probabilities, as a normal deviate (Wilson and Hilferty). Infinite if a token of
// probability zero was drawn.
double surprise(const std::vector<Index>& counts, const std::vector<double>& probability) {
  double draws = 0, square = 0;
  for (const Index n : counts) draws += double(n);
  int freedom = -1;
  for (std::size_t v = 0; v < counts.size(); ++v) {
    if (probability[v] == 0 && counts[v] > 0) return INFINITY;
    if (probability[v] == 0) continue;
    const double mean = draws * probability[v];
    square += (double(counts[v]) - mean) * (double(counts[v]) - mean) / mean;
    ++freedom;
  }
  if (freedom == 0) return 0;
  const double spread = 2.0 / (9 * freedom);
  return (std::cbrt(square / freedom) - (1 - spread)) / std::sqrt(spread);
}

std::vector<Index> drawn(const std::vector<double>& x, const Sampling& s, Index draws) {
  const Stream stream(s.seed, "test");
  std::vector<Index> counts(x.size(), 0);
  for (Index i = 0; i < draws; ++i) counts[sample_token(x, s, stream.uniform(i)).token] += 1;
  return counts;
}

constexpr double rare = 4;  // standard deviations: one of 30,000 correct samples exceeds this, and the seed is fixed

TEST(sampling, frequencies_match_softmax_of_the_kept_tokens) {
  for (const double temperature : {0.4, 1.0, 2.5})
    for (const Index k : {0, 1, 4, 9, 10, 99})
      for (const double p : {1.0, 0.95, 0.7, 0.3, 0.0}) {
        const auto counts = drawn(logits, {temperature, k, p, 3}, 20000);
        EXPECT_LT(surprise(counts, expected(logits, temperature, k, p)), rare) << "temperature " << temperature << " k " << k << " p " << p;
      }
}

// Check of the test itself: common mistakes in sampling exceed its bound by far.
TEST(sampling, frequency_test_detects_wrong_sampling_rules) {
  const auto honest = drawn(logits, {0.4, 0, 0.7, 3}, 20000);
  EXPECT_GT(surprise(honest, expected(logits, 1 / 0.4, 0, 0.7)), rare) << "an inverted temperature is not detected";
  EXPECT_GT(surprise(honest, expected(logits, 0.4, 0, 1)), rare) << "missing top-p is not detected";
  EXPECT_EQ(surprise(drawn(logits, {0.4, 0, 1, 3}, 20000), expected(logits, 0.4, 0, 0.7)), INFINITY) << "draws outside of top-p are not detected";
}

TEST(sampling, ties_keep_the_lower_token) {
  const auto kept = [](const std::vector<double>& x, Index k, double p) {
    const auto counts = drawn(x, {1, k, p, 5}, 2000);
    std::set<std::size_t> tokens;
    for (std::size_t v = 0; v < counts.size(); ++v)
      if (counts[v] > 0) tokens.insert(v);
    return tokens;
  };
  using Tokens = std::set<std::size_t>;
  const std::vector<double> equal(8, 1.25), steps{0, 3, 1, 3, 1, 1, 3, 0};
  EXPECT_EQ(kept(equal, 0, 0.5), (Tokens{0, 1, 2, 3})) << "p is reached exactly, so no further token is kept";
  EXPECT_EQ(kept(equal, 0, 0.51), (Tokens{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept(equal, 3, 1), (Tokens{0, 1, 2}));
  EXPECT_EQ(kept(equal, 4, 0.5), (Tokens{0, 1})) << "p applies to the mass that k keeps";
  EXPECT_EQ(kept(steps, 2, 1), (Tokens{1, 3}));
  EXPECT_EQ(kept(steps, 5, 1), (Tokens{1, 2, 3, 4, 6}));
  EXPECT_EQ(kept(steps, 0, 0.5), (Tokens{1, 3}));
  EXPECT_EQ(kept(steps, 0, 0), (Tokens{1}));
  EXPECT_EQ(sample_token(steps, {0, 0, 1, 1}, 0).token, 1) << "temperature 0 is greedy";
}

// Generated texts of a model whose LM head is zero, so that all tokens are equally likely.
std::vector<std::vector<Token>> guesses(const std::vector<std::vector<Token>>& prompts, std::uint64_t seed, Index made) {
  const Case& c = named("T1");
  Generator generator(c.model, DType::f64, single_rank_grid(c.model.layers()), {Index(prompts.size()), Index(prompts[0].size()), made});
  Device device(false, 0);
  const Parameter* head = &generator.stage().head().weight();
  for (const auto& p : generator.stage().parameters().all())
    assign(device, *p, [&, values = WeightValues(p->weight)](Index i) { return p.get() == head ? 0 : values(i); });
  return texts_of(generator, prompts, {1, 0, 1, seed, made});
}

TEST(sampling, each_sequence_has_its_own_random_stream) {
  constexpr Index made = 24;
  const std::vector<Token> prompt{5, 9, 2};
  const auto texts = guesses(std::vector(4, prompt), 7, made);
  EXPECT_EQ(guesses(std::vector(4, prompt), 7, made), texts) << "equal seeds give different texts";
  const auto remaining = guesses(std::vector(4, prompt), 8, made);
  std::set<std::vector<Token>> different(texts.begin(), texts.end());
  different.insert(remaining.begin(), remaining.end());
  EXPECT_EQ(different.size(), 8u) << "two sequences or two seeds give the same text";
  EXPECT_EQ(guesses({prompt}, 7, made).front(), texts.front()) << "a text depends on the other sequences";
}

TEST(sampling, model_with_zero_head_samples_tokens_uniformly) {
  const auto texts = guesses(std::vector(16, std::vector<Token>{5, 9, 2}), 11, 40);
  std::vector<Index> counts(named("T1").model.vocab_size, 0), repeats(2, 0);
  for (const auto& text : texts)
    for (std::size_t i = 0; i < text.size(); ++i) {
      counts[text[i]] += 1;
      if (i > 0) repeats[text[i] == text[i - 1]] += 1;
    }
  const double each = 1.0 / double(counts.size());
  EXPECT_LT(surprise(counts, std::vector(counts.size(), each)), rare);
  EXPECT_LT(surprise(repeats, {1 - each, each}), rare) << "consecutive tokens are correlated";
}

}  // namespace
}  // namespace gyr::testing::sampling_suite
