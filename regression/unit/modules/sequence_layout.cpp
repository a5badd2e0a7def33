// SPDX-License-Identifier: BSD-3-Clause
// Token positions for every order in which context-parallel ranks partition sequences.
#include "modules/pass/sequence_layout.hpp"

#include <random>

#include "regression/support/documents.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::sequence_layout_suite {
namespace {

using Positions = std::vector<std::int32_t>;

// Layouts of all context-parallel ranks of one draw. They differ only in the rank.
std::vector<SequenceLayout> drawn(std::mt19937& random) {
  SequenceLayout s;
  s.batch = 1 + random() % 3, s.ranks = 1 + random() % 6;
  s.order = random() % 2 ? SequenceOrder::zigzag : SequenceOrder::contiguous;
  s.seq_length = Index(1 + random() % 9) * (s.order == SequenceOrder::zigzag ? 2 : 1);
  if (random() % 2)
    for (Index b = 0; b < s.batch; ++b) s.past.push_back(random() % 20);
  std::vector<SequenceLayout> all;
  for (s.rank = 0; s.rank < s.ranks; ++s.rank) all.push_back(s);
  return all;
}

std::string text(const SequenceLayout& s) {
  return fmt::format("{} sequences of {} x {}, {}", s.batch, s.ranks, s.seq_length, s.order == SequenceOrder::zigzag ? "zigzag" : "contiguous");
}

}  // namespace

TEST(sequence_layout, ranks_hold_every_token_once) {
  std::mt19937 random(5);
  for (int draw = 0; draw < 300; ++draw) {
    const auto ranks = drawn(random);
    SCOPED_TRACE(fmt::format("seed 5, draw {}: {}", draw, text(ranks[0])));
    const Index full = ranks[0].ranks * ranks[0].seq_length;
    std::vector<int> holders(full, 0);
    for (const SequenceLayout& s : ranks)
      for (Index t = 0; t < s.seq_length; ++t) ++holders.at(s.place(t));
    EXPECT_EQ(holders, std::vector<int>(full, 1));
    for (const SequenceLayout& s : ranks) {
      const Positions positions = positions_of(s, {});
      for (Index r = 0; r < s.rows(); ++r) EXPECT_EQ(positions[r], s.past_of(r / s.seq_length) + s.place(r % s.seq_length)) << "row " << r;
    }
  }
}

// A query at position p attends to p + 1 keys.
TEST(sequence_layout, zigzag_order_balances_causal_attention_work) {
  std::mt19937 random(6);
  for (int draw = 0; draw < 300; ++draw) {
    const auto ranks = drawn(random);
    if (ranks[0].order != SequenceOrder::zigzag) continue;
    SCOPED_TRACE(fmt::format("seed 6, draw {}: {}", draw, text(ranks[0])));
    const auto keys = [](const SequenceLayout& s) {
      Index sum = 0;
      for (Index t = 0; t < s.seq_length; ++t) sum += s.place(t) + 1;
      return sum;
    };
    for (const SequenceLayout& s : ranks) EXPECT_EQ(keys(s), keys(ranks[0])) << "rank " << s.rank;
  }
}

// Document positions of full sequences are accepted on every rank. An error reports a token whose position does not
// follow that of the token before it.
TEST(sequence_layout, non_consecutive_document_positions_are_refused) {
  std::mt19937 random(7);
  int refused = 0;
  for (int draw = 0; draw < 300; ++draw) {
    const auto ranks = drawn(random);
    SCOPED_TRACE(fmt::format("seed 7, draw {}: {}", draw, text(ranks[0])));
    const Index full = ranks[0].ranks * ranks[0].seq_length;
    Positions documents;
    for (Index b = 0; b < ranks[0].batch; ++b)
      for (Index t = 0, p = random() % 5; t < full; ++t, p = random() % 4 ? p + 1 : 0) documents.push_back(std::int32_t(p));
    for (const SequenceLayout& s : ranks) {
      Positions mine;
      for (Index r = 0; r < s.rows(); ++r) mine.push_back(documents[r / s.seq_length * full + s.place(r % s.seq_length)]);
      EXPECT_EQ(positions_of(s, mine), mine);
      const Index row = random() % s.rows(), t = row % s.seq_length;
      const bool follows = t > 0 && s.place(t) == s.place(t - 1) + 1;
      if (!follows) continue;
      mine[row] = mine[row - 1] + 2;
      ++refused;
      EXPECT_NE(std::string(error_of([&] { positions_of(s, mine); }).what()).find(fmt::format("row {} has position", row)), std::string::npos);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(sequence_layout, tokens_ahead_count_to_end_of_document) {
  std::mt19937 random(7);
  for (int draw = 0; draw < 100; ++draw) {
    const Index batch = 1 + random() % 3, length = 1 + random() % 12;
    Positions documents;
    for (Index r = 0; r < batch * length; ++r)  // a sequence may begin inside a document
      documents.push_back(std::int32_t(r % length == 0 ? random() % 3 : random() % 4 ? documents.back() + 1 : 0));
    EXPECT_EQ(tokens_ahead(documents, length), ahead_of(documents, length)) << "seed 7, draw " << draw;
  }
}

}  // namespace gyr::testing::sequence_layout_suite
