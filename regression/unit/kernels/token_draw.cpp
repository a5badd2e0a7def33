// SPDX-License-Identifier: BSD-3-Clause
// Token sampling from shards of the vocabulary against plain loops over sorted rows.
#include "kernels/ops/sampling/token_draw.hpp"

#include <numeric>
#include <random>

#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::token_draw_suite {

namespace {

// Token that a plain loop draws from a row, with the weight of the tokens that top_k and top_p keep.
struct Plain {
  Index token = 0;
  double kept = 0, all = 0;
};

Plain plain(const std::vector<double>& l, const DrawRules& rules, double uniform) {
  std::vector<Index> order(l.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return l[a] > l[b]; });
  std::vector<double> weight;
  for (const Index v : order) weight.push_back(std::exp((l[v] - l[order[0]]) / rules.temperature));
  Plain p;
  p.all = std::accumulate(weight.begin(), weight.end(), 0.0);
  if (rules.top_k > 0) weight.resize(std::min<std::size_t>(weight.size(), rules.top_k));
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  std::size_t count = 0;
  while (count < weight.size() && (count == 0 || p.kept < rules.top_p * total)) p.kept += weight[count++];
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    p.token = order[i], sum += weight[i];
    if (sum > uniform * p.kept) break;
  }
  return p;
}

// Searches of tensor-parallel ranks that hold `parts` columns each, followed by padding. Bins are reduced by hand.
template <class A>
struct Sharded {
  Workbench bench;
  std::vector<Tensor2<A>> shards;
  std::vector<Index> parts;
  Tensor1<A> top, found;
  Tensor1<TokenDraw> draws;

  Sharded(const std::vector<std::vector<double>>& rows, const std::vector<double>& uniforms, std::vector<Index> of, Index padding)
      : parts(std::move(of)) {
    const Index height = Index(rows.size());
    top = bench.zeros<A>(height), found = bench.zeros<A>(Index(uniforms.size())), draws = bench.arena.tensor<TokenDraw>(Index(uniforms.size()));
    for (std::size_t d = 0; d < uniforms.size(); ++d) draws(d) = TokenDraw{uniforms[d]};
    for (Index r = 0; r < height; ++r) top(r) = A(*std::max_element(rows[r].begin(), rows[r].end()));
    Index first = 0;
    for (const Index count : parts) {
      const auto shard = bench.zeros<A>(height, count + padding);
      for (Index r = 0; r < height; ++r)
        for (Index v = 0; v < count + padding; ++v) shard(r, v) = v < count ? A(rows[r][first + v]) : A(1e30);
      shards.push_back(shard), first += count;
    }
  }
  void search(TokenSearch what, const DrawRules& rules) {
    const Index all = draws.extent(0);
    const auto bins = bench.zeros<double>(all, 2 * draw_digits_of_round), part = bench.zeros<double>(all, 2 * draw_digits_of_round);
    for (int round = 0; round < draw_rounds<A>; ++round) {
      std::fill_n(bins.data(), bins.span(), 0.0);
      for (std::size_t i = 0; i < shards.size(); ++i) {
        draw_bins<A>(bench.dev, shards[i], parts[i], top, rules.temperature, round, draws, part);
        for (std::size_t k = 0; k < bins.span(); ++k) bins.data()[k] += part.data()[k];
      }
      draw_digits<A>(bench.dev, what, round, rules, bins, draws, found);
    }
  }
  void all_searches(const DrawRules& rules) {
    if (rules.top_k > 0 && rules.top_k < rules.vocab_size) search(TokenSearch::top_k, rules);
    if (rules.top_p < 1) search(TokenSearch::top_p, rules);
    search(TokenSearch::token, rules);
  }
};

template <class A>
std::vector<double> some_row(std::mt19937_64& random, Index columns, double spread) {
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> row;
  for (Index v = 0; v < columns; ++v) row.push_back(double(A(normal(random))));
  return row;
}

// Random rows, shardings and rules. Draws that are not marked as uncertain are exact.
template <class A>
void expect_plain_draws() {
  std::mt19937_64 random(seed_of_run());
  const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
  Index draws = 0, uncertain = 0;
  for (int number = 0; number < 14; ++number) {
    const Index columns = from(1, 300), height = from(1, 4), all = height == 1 ? from(1, 5) : height;
    std::vector<std::vector<double>> rows;
    for (Index r = 0; r < height; ++r) rows.push_back(some_row<A>(random, columns, double(from(0, 8)) / 2));
    std::vector<double> uniforms;
    for (Index d = 0; d < all; ++d) uniforms.push_back(std::uniform_real_distribution<double>()(random));
    if (from(0, 9) == 0) uniforms[0] = 0;
    const Index first = from(0, columns), second = from(0, columns - first);
    const DrawRules rules{double(from(1, 30)) / 10, from(0, 1) * from(1, columns + 5), from(0, 1) ? 1 : double(from(0, 99)) / 100, columns};
    Sharded<A> s(rows, uniforms, {first, second, columns - first - second}, from(0, 9));
    s.all_searches(rules);
    for (Index d = 0; d < all; ++d) {
      const TokenDraw& draw = s.draws(d);
      ++draws, uncertain += draw.uncertain != 0;
      if (draw.uncertain != 0) continue;
      const std::vector<double>& row = rows[height == 1 ? 0 : d];
      const Plain want = plain(row, rules, uniforms[d]);
      ASSERT_EQ(double(s.found(d)), row[want.token]) << "case " << number << ", draw " << d << ", " << columns << " columns";
      EXPECT_EQ(draw.finite, double(columns));
      EXPECT_NEAR(draw.kept, want.kept, 1e-12 * want.all);
      EXPECT_NEAR(draw.all, want.all, 1e-12 * want.all);
      EXPECT_NEAR(draw.weight, std::exp((row[want.token] - *std::max_element(row.begin(), row.end())) / rules.temperature), 1e-15);
    }
  }
  EXPECT_LT(5 * uncertain, 2 * draws) << "too many draws are left to the caller";  // rows of equal logits, and few columns of float
}

TEST(token_draw, double_searches_equal_plain_loops) { expect_plain_draws<double>(); }
TEST(token_draw, float_searches_equal_plain_loops) { expect_plain_draws<float>(); }

// Equal logits at a limit, and a limit at the border of a token, are left to the caller.
TEST(token_draw, ties_and_borders_are_uncertain) {
  const auto uncertain = [](const std::vector<double>& row, double uniform, const DrawRules& rules) {
    Sharded<float> s({row}, {uniform}, {Index(row.size())}, 3);
    s.all_searches(rules);
    return s.draws(0).uncertain != 0;
  };
  const std::vector<double> ties{0, 3, 1, 3, 0.5}, halves{0, 0}, steps{2, 0, 1, -1};
  EXPECT_TRUE(uncertain(ties, 0.1, {1, 0, 1, 5}));
  EXPECT_FALSE(uncertain(ties, 0.9, {1, 0, 1, 5})) << "the drawn token has no tie";
  EXPECT_TRUE(uncertain(ties, 0.9, {1, 1, 1, 5})) << "top_k ends within a tie";
  EXPECT_TRUE(uncertain(halves, 0.5, {1, 0, 1, 2}));
  EXPECT_FALSE(uncertain(steps, 0, {1, 0, 1, 4}));
  EXPECT_FALSE(uncertain(steps, 0.5, {1, 2, 0, 4})) << "top_p 0 keeps the most likely token";
  const double second = std::exp(-1.0) + 1, all = second + std::exp(-2.0) + std::exp(-3.0);
  EXPECT_TRUE(uncertain(steps, second / all, {1, 0, 1, 4}));
  EXPECT_TRUE(uncertain(steps, 0.2, {1, 0, second / all, 4}));
  EXPECT_FALSE(uncertain(steps, second / all + 1e-9, {1, 0, 1, 4}));
  EXPECT_TRUE(uncertain({0.0, -0.0, -5}, 0.3, {1, 0, 1, 3})) << "0 and -0 are equal logits";
}

// Best columns of all shards: token, and the logarithm of its weight.
template <class A>
std::pair<Index, double> gumbel(const std::vector<double>& row, const TokenDraw& draw, double temperature, const std::vector<Index>& parts) {
  Sharded<A> s({row}, {0}, parts, 5);
  s.draws(0) = draw;
  const auto best = s.bench.template zeros<double>(1, 3);
  double most = -INFINITY, weight = 0;
  Index token = -1, first = 0;
  for (std::size_t i = 0; i < parts.size(); first += parts[i++]) {
    gumbel_best<A>(s.bench.dev, s.shards[i], parts[i], s.top, first, temperature, s.draws, best);
    EXPECT_EQ(best(0, 1) < 0, parts[i] == 0);
    if (parts[i] > 0 && best(0, 0) > most) most = best(0, 0), token = Index(best(0, 1)), weight = best(0, 2);
  }
  return {token, weight};
}

// The vector is that of the specification of policy training.
TEST(token_draw, gumbel_draws_equal_the_specified_tokens) {
  const std::vector<double> z{0.3, 2.1, -1.2, 1.4};
  TokenDraw draw;
  draw.seed = 7, draw.stream = hash_of("rollout 17/2");
  const Stream stream(7, "rollout 17/2");
  EXPECT_NEAR(stream.uniform(1), 0.484286712914, 1e-12);
  std::vector<Index> tokens;
  for (draw.position = 0; draw.position < 8; ++draw.position) {
    tokens.push_back(gumbel<double>(z, draw, 1, {4}).first);
    for (const std::vector<Index>& parts : {std::vector<Index>{1, 3}, {2, 0, 2}, {1, 1, 1, 1}}) {
      EXPECT_EQ(gumbel<double>(z, draw, 1, parts).first, tokens.back());
      EXPECT_EQ(gumbel<float>(z, draw, 1, parts).first, tokens.back());
    }
  }
  EXPECT_EQ(tokens, (std::vector<Index>{1, 1, 1, 1, 1, 0, 1, 3}));
}

TEST(token_draw, gumbel_draws_equal_plain_loops) {
  std::mt19937_64 random(seed_of_run());
  for (int number = 0; number < 20; ++number) {
    const Index columns = 1 + Index(random() % 300), first = Index(random() % std::uint64_t(columns + 1));
    const std::vector<double> row = some_row<float>(random, columns, 2);
    const double temperature = 0.1 * double(1 + random() % 30);
    TokenDraw draw;
    draw.seed = random(), draw.stream = hash_of("a"), draw.position = std::int64_t(random() % 1000);
    const Stream stream(draw.seed, "a");
    Index want = 0;
    double most = -INFINITY;
    for (Index v = 0; v < columns; ++v)
      if (const double score = row[v] / temperature - std::log(-std::log(stream.uniform((draw.position << 32) + v))); score > most)
        most = score, want = v;
    const auto [token, weight] = gumbel<float>(row, draw, temperature, {first, columns - first});
    EXPECT_EQ(token, want);
    EXPECT_NEAR(weight, (row[want] - *std::max_element(row.begin(), row.end())) / temperature, 1e-12);
  }
}

// NaN and infinity are in no bin, so that the caller finds them by the number of finite logits.
TEST(token_draw, non_finite_logits_are_not_counted) {
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    Sharded<float> s({{1, bad, 2, 0}}, {0.4}, {4}, 0);
    s.search(TokenSearch::token, {1, 0, 1, 4});
    EXPECT_EQ(s.draws(0).finite, 3);
  }
}

}  // namespace
}  // namespace gyr::testing::token_draw_suite
