// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/embedding.hpp"

#include <array>
#include <random>

#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::embedding_suite {

namespace {

constexpr Index height = 60, vocab_size = 12;
constexpr std::array<Index, 2> widths{1100, 1104};  // wider than one team's columns; the second one is a multiple of 16 bytes in any type
constexpr double scale = 1.75;
constexpr Token pad_token_id = 3;

// Tokens that cover the vocabulary, each of them several times.
Tensor1<Token> some_tokens(Workbench& bench) {
  const auto tokens = bench.zeros<Token>(height);
  for (Index r = 0; r < height; ++r) tokens(r) = Token(r * 7 % vocab_size);
  return tokens;
}

template <class T>
void picks_rows(Index width, Index first, Index held) {
  Workbench bench;
  const auto tokens = some_tokens(bench);
  const auto table = bench.normal<T>(held, width), x = bench.normal<T>(height, width);
  embedding<T>(bench.dev, tokens, table, first, scale, x);
  std::vector<double> want(height * width);
  for (Index r = 0; r < height; ++r)
    for (Index d = 0; d < width; ++d)
      if (tokens(r) >= first && tokens(r) < first + held) want[r * width + d] = scale * double(table(tokens(r) - first, d));
  EXPECT_LE(difference(values_of(x), want), tolerance<T>);
}

template <class T>
void sums_rows(Index width, Index first, Index held, Token pad_token_id) {
  using A = Acc<T>;
  Workbench bench;
  const auto tokens = some_tokens(bench);
  const auto dx = bench.normal<T>(height, width);
  const auto dtable = bench.normal<A>(held, width), again = bench.copy(dtable);
  auto want = values_of(dtable);
  for (Index r = 0; r < height; ++r)
    for (Index d = 0; d < width; ++d)
      if (tokens(r) >= first && tokens(r) < first + held && tokens(r) != pad_token_id)
        want[(tokens(r) - first) * width + d] += scale * double(dx(r, d));
  embedding_backward<T>(bench.dev, tokens, dx, first, scale, pad_token_id, dtable);
  EXPECT_LE(difference(values_of(dtable), want), tolerance<A>);
  embedding_backward<T>(bench.dev, tokens, dx, first, scale, pad_token_id, again);
  EXPECT_TRUE(same_bits(dtable, again));
}

// Random tokens, skewed towards high ids, and the rows of the table that this rank holds.
struct Text {
  Index vocab_size, first, held, width;
  std::vector<Token> tokens;

  explicit Text(std::mt19937& random) {
    const auto pick = [&](Index least, Index most) { return std::uniform_int_distribution<Index>(least, most)(random); };
    constexpr Index sizes[] = {1, 2, 40, 3000};
    vocab_size = sizes[pick(0, 3)], width = pick(0, 1) ? 8 * pick(1, 6) : pick(1, 40);
    first = pick(0, vocab_size - 1), held = pick(1, vocab_size - first);
    if (pick(0, 1)) first = 0, held = vocab_size;
    const Index skew = pick(1, 8);
    std::uniform_real_distribution<double> fraction(0, 1);
    for (Index r = pick(1, 900); r > 0; --r)
      tokens.push_back(Token(vocab_size - 1 - Index(double(vocab_size) * std::pow(fraction(random), double(skew)))));
  }
  std::string name() const { return fmt::format("{} tokens of {}, rows {} to {}, width {}", tokens.size(), vocab_size, first, first + held, width); }
};

Tensor1<Token> tensor_of(Workbench& bench, const std::vector<Token>& tokens) {
  const auto x = bench.arena.tensor<Token>(Index(tokens.size()));
  std::copy(tokens.begin(), tokens.end(), x.data());
  return x;
}

template <class T>
void sums_drawn_rows(const Text& text) {
  using A = Acc<T>;
  Workbench bench;
  const Index rows = Index(text.tokens.size());
  const auto dx = bench.normal<T>(rows, text.width);
  const auto dtable = bench.normal<A>(text.held, text.width);
  auto want = values_of(dtable);
  for (Index r = 0; r < rows; ++r)
    if (const Index row = text.tokens[std::size_t(r)] - text.first; row >= 0 && row < text.held)
      for (Index d = 0; d < text.width; ++d) want[std::size_t(row * text.width + d)] += scale * double(dx(r, d));
  embedding_backward<T>(bench.dev, tensor_of(bench, text.tokens), dx, text.first, scale, -1, dtable);
  EXPECT_LE(difference(values_of(dtable), want), tolerance<A>);
}

// The gradient row of a token has the same bits whether all rows are added or only the rows of this token.
template <class T>
void does_not_see_other_tokens(const Text& text, std::mt19937& random) {
  using A = Acc<T>;
  Workbench bench;
  const Index rows = Index(text.tokens.size());
  const Token token = text.tokens[std::size_t(std::uniform_int_distribution<Index>(0, rows - 1)(random))];
  if (token < text.first || token >= text.first + text.held) return;
  const Index local = std::count(text.tokens.begin(), text.tokens.end(), token);
  const auto dx = bench.normal<T>(rows, text.width), local_dx = bench.zeros<T>(local, text.width);
  Index next = 0;
  for (Index r = 0; r < rows; ++r)
    if (text.tokens[std::size_t(r)] == token) std::copy_n(dx.data() + r * text.width, text.width, local_dx.data() + next++ * text.width);
  const auto dtable = bench.normal<A>(text.held, text.width), single = bench.copy(dtable);
  embedding_backward<T>(bench.dev, tensor_of(bench, text.tokens), dx, text.first, scale, -1, dtable);
  embedding_backward<T>(bench.dev, tensor_of(bench, std::vector<Token>(std::size_t(local), token)), local_dx, text.first, scale, -1, single);
  EXPECT_TRUE(same_bits(gyr::rows(dtable, token - text.first, 1), gyr::rows(single, token - text.first, 1))) << local << " rows of token " << token;
}

}  // namespace

TEST(embedding, picks_scaled_rows_and_zeros_for_other_ranks) {
  for (const Index width : widths)
    for (const auto& [first, held] : {std::pair<Index, Index>{0, vocab_size}, {4, 5}, {20, 3}}) {
      picks_rows<double>(width, first, held);
      picks_rows<float>(width, first, held);
      picks_rows<bf16>(width, first, held);
    }
}

TEST(embedding, shards_of_table_sum_to_full_result) {
  Workbench bench;
  const Index width = widths[0];
  const auto tokens = some_tokens(bench);
  const auto table = bench.normal<double>(vocab_size, width);
  const auto full = bench.zeros<double>(height, width), part = bench.zeros<double>(height, width);
  embedding<double>(bench.dev, tokens, table, 0, scale, full);
  std::vector<double> total(height * width);
  for (const auto& [first, held] : {std::pair<Index, Index>{0, 5}, {5, 4}, {9, 3}}) {
    embedding<double>(bench.dev, tokens, rows(table, first, held), first, scale, part);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += part.data()[i];
  }
  EXPECT_EQ(total, values_of(full));
}

TEST(embedding, gradient_sums_equal_tokens_and_skips_padding) {
  for (const Index width : widths)
    for (const Token pad : {pad_token_id, Token(-1)})
      for (const auto& [first, held] : {std::pair<Index, Index>{0, vocab_size}, {2, 5}, {20, 3}}) {
        sums_rows<double>(width, first, held, pad);
        sums_rows<float>(width, first, held, pad);
        sums_rows<bf16>(width, first, held, pad);
      }
}

TEST(embedding, gradient_equals_finite_differences) {
  Workbench bench;
  const Index narrow = 3;
  const auto tokens = some_tokens(bench);
  const auto table = bench.normal<double>(vocab_size, narrow), x = bench.zeros<double>(height, narrow);
  const auto dx = bench.normal<double>(height, narrow), dtable = bench.zeros<double>(vocab_size, narrow);
  const auto loss = [&] {
    embedding<double>(bench.dev, tokens, table, 0, scale, x);
    return dot(values_of(x), values_of(dx));
  };
  embedding_backward<double>(bench.dev, tokens, dx, 0, scale, -1, dtable);
  EXPECT_LE(difference(values_of(dtable), slope(flat(table), loss)), 1e-9);
}

TEST(embedding, tokens_outside_table_give_zero_rows) {
  Workbench bench;
  const auto tokens = bench.zeros<Token>(3);
  tokens(0) = -100, tokens(1) = vocab_size, tokens(2) = std::numeric_limits<Token>::max();
  const auto table = bench.normal<float>(vocab_size, 8), x = bench.normal<float>(3, 8), dtable = bench.zeros<float>(vocab_size, 8);
  embedding<float>(bench.dev, tokens, table, 0, 1, x);
  EXPECT_EQ(values_of(x), std::vector<double>(24));
  embedding_backward<float>(bench.dev, tokens, bench.normal<float>(3, 8), 0, 1, -1, dtable);
  EXPECT_EQ(values_of(dtable), std::vector<double>(vocab_size * 8));
}

TEST(embedding, gradient_of_random_tokens_matches_reference_loops) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (int draw = 0; draw < 24; ++draw) {
    const Text text(random);
    SCOPED_TRACE(text.name());
    sums_drawn_rows<bf16>(text);
    if (draw % 3) continue;
    sums_drawn_rows<float>(text);
    sums_drawn_rows<double>(text);
  }
}

TEST(embedding, gradient_of_token_is_independent_of_others) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (int draw = 0; draw < 24; ++draw) {
    const Text text(random);
    SCOPED_TRACE(text.name());
    does_not_see_other_tokens<float>(text, random);
    does_not_see_other_tokens<bf16>(text, random);
  }
}

TEST(embedding, dry_run_counts_same_work_and_scratch) {
  Workbench bench;
  const auto use = [](Device& dev, Tensor1<const Token> tokens, Tensor2<float> x, Tensor2<float> table) {
    embedding_backward<float>(dev, tokens, x, 0, scale, -1, table);
  };
  for (const Index rows : {3, 63, 64, 500}) {
    Device dry(true, 0), real(false, 1 << 20);
    Arena memory = Arena::dry_run(Memory::activations);
    use(dry, memory.tensor<Token>(rows), memory.tensor<float>(rows, 24), memory.tensor<float>(8, 24));
    use(real, bench.zeros<Token>(rows), bench.normal<float>(rows, 24), bench.zeros<float>(8, 24));
    EXPECT_EQ(dry.scratch.high_water(), real.scratch.high_water());
    EXPECT_EQ(dry.scratch.used(), 0);
    EXPECT_EQ(dry.flops(), real.flops());
    EXPECT_GT(dry.flops(), 0);
  }
}

}  // namespace gyr::testing::embedding_suite
