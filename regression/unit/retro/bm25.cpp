// SPDX-License-Identifier: BSD-3-Clause
// BM25: the stated vector, and drawn databases whose search results equal a plain loop over all chunks.
#include "src/retro/bm25.hpp"

#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "regression/support/retro.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/retro/cut.hpp"
#include "src/retro/shard.hpp"

namespace gyr::testing::bm25_suite {
namespace {

using retro::Candidate;

// Score of each chunk by the formula, term by term. N: chunks; n: those with the term.
std::vector<double> plain_scores(const std::vector<std::vector<std::int32_t>>& chunks, const std::vector<std::int32_t>& distinct, double common) {
  double mean = 0;
  for (const auto& chunk : chunks) mean += double(chunk.size()) / double(chunks.size());
  std::vector<double> scores(chunks.size());
  for (const std::int32_t term : distinct) {
    const auto with = double(std::count_if(chunks.begin(), chunks.end(), [&](const auto& c) { return std::count(c.begin(), c.end(), term) > 0; }));
    const double N = double(chunks.size()), idf = std::log(1 + (N - with + .5) / (with + .5));
    if (N > 1000 && with > common * N) continue;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      const double f = std::min<double>(255, double(std::count(chunks[c].begin(), chunks[c].end(), term)));
      scores[c] += idf * f * 2.2 / (f + 1.2 * (.25 + .75 * double(chunks[c].size()) / mean));
    }
  }
  return scores;
}

// The candidates are the best chunks of the plain loop. Scores that differ by rounding only may be exchanged, but those
// of equal chunks are in the order of their ids.
void expect_best(const std::vector<Candidate>& found, const std::vector<std::vector<std::int32_t>>& chunks, const std::vector<double>& plain,
                 std::size_t most) {
  std::vector<double> sorted = plain;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto positive = std::size_t(std::count_if(plain.begin(), plain.end(), [](double s) { return s > 0; }));
  ASSERT_EQ(found.size(), std::min(most, positive));
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].score, sorted[i], 1e-12 * (1 + sorted[i])) << "result " << i;
    EXPECT_NEAR(found[i].score, plain[std::size_t(found[i].id)], 1e-12 * (1 + sorted[i])) << "chunk " << found[i].id;
    if (i > 0 && chunks[std::size_t(found[i].id)] == chunks[std::size_t(found[i - 1].id)]) {
      EXPECT_LT(found[i - 1].id, found[i].id);
    }
  }
}

TEST(bm25, stated_chunks_have_the_stated_scores) {
  const Folder folder;
  write_token_files(folder / "a", {{5, 7, 7, 9}, {7, 8, 2, 2}, {5, 5, 9, 1}, {3, 4, 6, 8}}, TokenType::u16);
  retro::ProjectSettings settings = plain_settings({folder / "a"}, 64, 3);
  settings.split = "1";
  const RetroProject project(folder / "p", settings);
  retro::Retriever retriever(project.path, *project.database, one_rank());
  const auto found = retriever.search({{5, 7, 9}}, 10, 0);
  ASSERT_EQ(found[0].size(), 3u) << "the last chunk has no token of the query";
  const std::pair<std::int64_t, double> stated[] = {{0, 2.33937173439}, {2, 1.64622455383}, {1, 0.69314718056}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found[0][i].id, stated[i].first);
    EXPECT_NEAR(found[0][i].score, stated[i].second, 1e-11);
  }
}

TEST(bm25, search_equals_a_plain_loop_on_drawn_databases) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 4; ++draw) {
    const Folder folder;
    const bool large = draw % 2 == 1;  // over 1000 chunks: common tokens have no list
    const int vocabulary = large ? 400 : 2 + int(random() % 40);
    write_token_files(folder / "a", drawn_documents(random, large ? 500 : 20 + int(random() % 40), large ? 90 : 60, vocabulary), TokenType::u16);
    write_token_files(folder / "b", drawn_documents(random, 30, 30, vocabulary), TokenType::i32);
    retro::ProjectSettings settings =
        plain_settings({folder / "a", folder / "b"}, large ? 16 : 4 + std::int64_t(random() % 12), 15 + std::int64_t(random() % 400));
    settings.special = {2, 5}, settings.end = 5;
    const double common = large ? 0.05 : 0.1;
    const RetroProject project(folder / "p", settings, common);
    std::vector<std::vector<std::int32_t>> chunks;
    for (std::int64_t id = 0; id < project.database->size(); ++id)
      chunks.push_back(retro::terms_of(project.settings, project.database->tokens(project.database->rows(id, 1)[0])));
    EXPECT_EQ(chunks.size() > 1000, large);
    retro::Retriever retriever(project.path, *project.database, one_rank());
    std::vector<std::vector<std::int32_t>> queries;
    for (int q = 0; q < 12; ++q) {
      std::vector<std::int32_t> tokens(random() % 20);
      for (std::int32_t& token : tokens) token = 1 + std::int32_t(random() % unsigned(vocabulary + 3));
      queries.push_back(retro::distinct_terms_of(project.settings, tokens));
    }
    const auto most = std::size_t(1 + random() % 40);
    const auto found = retriever.search(queries, std::int64_t(most), 0);
    for (std::size_t q = 0; q < queries.size(); ++q) expect_best(found[q], chunks, plain_scores(chunks, queries[q], common), most);
  }
}

// A block of `chunks` chunks with `terms` lists, in which term t is in about every (t + 1)-th chunk, and its statistics.
struct DrawnBlock {
  DrawnBlock(std::mt19937& random, std::int64_t first, std::size_t chunks, std::uint32_t terms, std::uint32_t longest,
             std::uint32_t most_occurrences) {
    block.first = first, block.offsets = {0};
    for (std::size_t c = 0; c < chunks; ++c) {
      block.lengths.push_back(1 + std::uint32_t(random() % longest));
      block.corpora.push_back(std::uint32_t(random() % 3)), block.documents.push_back(std::uint32_t(random() % 1000));
    }
    for (std::uint32_t t = 0; t < terms; ++t) {
      for (auto c = std::uint32_t(random() % (t + 1)); c < chunks; c += 1 + std::uint32_t(random() % (2 * t + 1)))
        block.ids.push_back(c), block.frequencies.push_back(std::uint8_t(1 + random() % most_occurrences));
      block.terms.push_back(3 * t), block.offsets.push_back(block.ids.size());
    }
  }
  // Adds the block's chunks and lists to the statistics.
  void count(retro::TermStatistics& all) const {
    all.size += block.lengths.size(), all.total += std::accumulate(block.lengths.begin(), block.lengths.end(), std::uint64_t(0));
    all.terms = block.terms, all.chunks.resize(block.terms.size());
    for (std::size_t i = 0; i < block.terms.size(); ++i) all.chunks[i] += block.offsets[i + 1] - block.offsets[i];
  }
  // Adds the scores of all chunks by the formula, one posting after the other.
  void score(const retro::TermStatistics& all, const std::vector<std::int32_t>& query, std::vector<Candidate>& found) const {
    std::vector<double> scores(block.lengths.size());
    for (const std::int32_t term : query)
      for (std::size_t list = 0; list < block.terms.size(); ++list)
        for (std::uint64_t i = block.offsets[list]; block.terms[list] == std::uint32_t(term) && i < block.offsets[list + 1]; ++i) {
          const double f = block.frequencies[i], idf = all.idf(all.chunks_with(std::uint32_t(term)));
          scores[block.ids[i]] += idf * (f * (1.2 + 1)) / (f + 1.2 * (1 - .75 + .75 * double(block.lengths[block.ids[i]]) / all.mean()));
        }
    for (std::size_t c = 0; c < scores.size(); ++c)
      if (scores[c] > 0) found.push_back({scores[c], block.first + std::int64_t(c), block.corpora[c], block.documents[c]});
  }
  retro::PostingBlock block;
};

TEST(bm25, windows_keep_the_bits_of_scores) {
  std::mt19937 random(seed_of_run());
  // Full windows; many distinct lengths; few distinct scores, so that ties decide.
  for (const auto& [chunks, longest, occurrences] : {std::tuple(70'000u, 64u, 3u), std::tuple(3'000u, 1'200u, 255u), std::tuple(5'000u, 1u, 1u)}) {
    const DrawnBlock one(random, 0, chunks, 40, longest, occurrences), two(random, 200'000, 2'000, 40, longest, occurrences);
    retro::TermStatistics statistics;
    one.count(statistics), two.count(statistics);
    retro::Shard shard(statistics);
    shard.add(one.block), shard.add(two.block);
    std::vector<std::vector<std::int32_t>> queries{{}};
    for (int q = 0; q < 6; ++q) {
      std::set<std::int32_t> terms;
      for (int t = 0; t < 12; ++t) terms.insert(std::int32_t(random() % 130));
      queries.emplace_back(terms.begin(), terms.end());
    }
    const std::int64_t most = 1 + std::int64_t(random() % 300);
    auto found = shard.search(queries, most);
    for (std::size_t q = 0; q < queries.size(); ++q) {
      std::vector<Candidate> expected;
      one.score(statistics, queries[q], expected), two.score(statistics, queries[q], expected);
      retro::keep_best(expected, most), retro::keep_best(found[q], most);
      ASSERT_EQ(found[q].size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(std::bit_cast<std::uint64_t>(found[q][i].score), std::bit_cast<std::uint64_t>(expected[i].score)) << "result " << i;
        EXPECT_EQ(std::tuple(found[q][i].id, found[q][i].corpus, found[q][i].document),
                  std::tuple(expected[i].id, expected[i].corpus, expected[i].document));
      }
    }
  }
}

TEST(bm25, frequencies_above_255_count_as_255) {
  const Folder folder;
  write_token_files(folder / "a", {std::vector<std::int32_t>(300, 7), std::vector<std::int32_t>(255, 7), {8, 9}}, TokenType::u16);
  retro::ProjectSettings settings = plain_settings({folder / "a"}, 400, 10);
  settings.split = "1";
  const RetroProject project(folder / "p", settings);
  retro::Retriever retriever(project.path, *project.database, one_rank());
  const auto found = retriever.search({{7}}, 10, 0);
  const auto plain = plain_scores({std::vector<std::int32_t>(300, 7), std::vector<std::int32_t>(255, 7), {8, 9}}, {7}, 0.1);
  ASSERT_EQ(found[0].size(), 2u);
  for (const Candidate& c : found[0]) EXPECT_NEAR(c.score, plain[std::size_t(c.id)], 1e-12);
}

}  // namespace
}  // namespace gyr::testing::bm25_suite
