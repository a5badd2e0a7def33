// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/embedding.hpp"

#include <array>

#include "regression/tensors.hpp"

using namespace gyr;

namespace {

constexpr Index height = 60, vocab_size = 12;
constexpr std::array<Index, 2> widths{1100, 1104};  // more than one team's columns, and one that divides into 16 bytes of any type
constexpr double scale = 1.75;
constexpr Token pad_token_id = 3;

// Tokens of the whole vocabulary, each of them many times.
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
  EXPECT_LE(difference(numbers(x), want), tolerance<T>);
}

template <class T>
void sums_rows(Index width, Index first, Index held, Token pad_token_id) {
  using A = Acc<T>;
  Workbench bench;
  const auto tokens = some_tokens(bench);
  const auto dx = bench.normal<T>(height, width);
  const auto dtable = bench.normal<A>(held, width), again = bench.copy(dtable);
  auto want = numbers(dtable);
  for (Index r = 0; r < height; ++r)
    for (Index d = 0; d < width; ++d)
      if (tokens(r) >= first && tokens(r) < first + held && tokens(r) != pad_token_id)
        want[(tokens(r) - first) * width + d] += scale * double(dx(r, d));
  embedding_backward<T>(bench.dev, tokens, dx, first, scale, pad_token_id, dtable);
  EXPECT_LE(difference(numbers(dtable), want), tolerance<A>);
  embedding_backward<T>(bench.dev, tokens, dx, first, scale, pad_token_id, again);
  EXPECT_TRUE(same_bits(dtable, again));
}

}  // namespace

TEST(embedding, picks_scaled_rows_and_leaves_zero_for_other_ranks) {
  for (const Index width : widths)
    for (const auto& [first, held] : {std::pair<Index, Index>{0, vocab_size}, {4, 5}, {20, 3}}) {
      picks_rows<double>(width, first, held);
      picks_rows<float>(width, first, held);
      picks_rows<bf16>(width, first, held);
    }
}

TEST(embedding, parts_of_the_table_sum_to_the_whole) {
  Workbench bench;
  const Index width = widths[0];
  const auto tokens = some_tokens(bench);
  const auto table = bench.normal<double>(vocab_size, width);
  const auto whole = bench.zeros<double>(height, width), part = bench.zeros<double>(height, width);
  embedding<double>(bench.dev, tokens, table, 0, scale, whole);
  std::vector<double> total(height * width);
  for (const auto& [first, held] : {std::pair<Index, Index>{0, 5}, {5, 4}, {9, 3}}) {
    embedding<double>(bench.dev, tokens, rows(table, first, held), first, scale, part);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += part.data()[i];
  }
  EXPECT_EQ(total, numbers(whole));
}

TEST(embedding, the_gradient_sums_equal_tokens_and_leaves_out_padding) {
  for (const Index width : widths)
    for (const Token pad : {pad_token_id, Token(-1)})
      for (const auto& [first, held] : {std::pair<Index, Index>{0, vocab_size}, {2, 5}, {20, 3}}) {
        sums_rows<double>(width, first, held, pad);
        sums_rows<float>(width, first, held, pad);
        sums_rows<bf16>(width, first, held, pad);
      }
}

TEST(embedding, the_gradient_is_the_slope) {
  Workbench bench;
  const Index narrow = 3;
  const auto tokens = some_tokens(bench);
  const auto table = bench.normal<double>(vocab_size, narrow), x = bench.zeros<double>(height, narrow);
  const auto dx = bench.normal<double>(height, narrow), dtable = bench.zeros<double>(vocab_size, narrow);
  const auto loss = [&] {
    embedding<double>(bench.dev, tokens, table, 0, scale, x);
    return dot(numbers(x), numbers(dx));
  };
  embedding_backward<double>(bench.dev, tokens, dx, 0, scale, -1, dtable);
  EXPECT_LE(difference(numbers(dtable), slope(flat(table), loss)), 1e-9);
}

TEST(embedding, tokens_outside_of_any_table_are_zero_rows) {
  Workbench bench;
  const auto tokens = bench.zeros<Token>(3);
  tokens(0) = -100, tokens(1) = vocab_size, tokens(2) = std::numeric_limits<Token>::max();
  const auto table = bench.normal<float>(vocab_size, 8), x = bench.normal<float>(3, 8), dtable = bench.zeros<float>(vocab_size, 8);
  embedding<float>(bench.dev, tokens, table, 0, 1, x);
  EXPECT_EQ(numbers(x), std::vector<double>(24));
  embedding_backward<float>(bench.dev, tokens, bench.normal<float>(3, 8), 0, 1, -1, dtable);
  EXPECT_EQ(numbers(dtable), std::vector<double>(vocab_size * 8));
}
