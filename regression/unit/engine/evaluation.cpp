// SPDX-License-Identifier: BSD-3-Clause
// Evaluation without a model: windows score every token once, batches hold every passage once, continuations are split
// from contexts correctly, and bad lines are refused by file and line.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/evaluation/batches.hpp"
#include "src/evaluation/examples.hpp"
#include "src/evaluation/mean.hpp"
#include "src/evaluation/windows.hpp"

namespace gyr::testing::evaluation_suite {
namespace {

TEST(evaluation, windows_score_each_token_once_with_minimum_context) {
  for (const Index tokens : {1, 2, 7, 8, 9, 10, 31, 64})
    for (const Index window : {1, 2, 5, 8, 100})
      for (const Index stride : {Index(1), Index(3), window - 1, window}) {
        if (stride < 1 || stride > window) continue;
        std::vector<int> scored(tokens, 0);
        for (const Window& w : strided_windows(tokens, window, stride)) {
          ASSERT_LE(w.last - w.first, window);
          ASSERT_LT(w.last, tokens);
          ASSERT_GT(w.scored, w.first);
          ASSERT_LE(w.scored, w.last);
          for (Index y = w.scored; y <= w.last; ++y) {
            ++scored[y];
            EXPECT_TRUE(w.first == 0 || y - w.first >= window - stride + 1) << tokens << " " << window << " " << stride << " " << y;
          }
        }
        EXPECT_EQ(scored[0], 0);
        for (Index y = 1; y < tokens; ++y) EXPECT_EQ(scored[y], 1) << tokens << " " << window << " " << stride << " " << y;
      }
}

TEST(evaluation, batches_hold_every_passage_once_within_their_limits) {
  std::vector<Index> lengths;
  for (Index i = 0; i < 200; ++i) lengths.push_back(1 + (i * i * 7 + i) % 53);
  for (const BatchLimits& limits : {BatchLimits{1, 1000}, BatchLimits{16, 1}, BatchLimits{7, 90}, BatchLimits{1000, 100000}}) {
    std::multiset<Index> seen;
    for (const Batch& batch : plan_batches(lengths, limits)) {
      Index longest = 0;
      for (const Index i : batch.members) seen.insert(i), longest = std::max(longest, lengths[i]);
      EXPECT_EQ(batch.seq_length, longest);
      EXPECT_LE(Index(batch.members.size()), limits.passages);
      EXPECT_TRUE(batch.members.size() == 1 || Index(batch.members.size()) * batch.seq_length <= limits.tokens);
    }
    EXPECT_EQ(seen.size(), lengths.size());
    EXPECT_EQ(std::set<Index>(seen.begin(), seen.end()).size(), lengths.size());
  }
  EXPECT_TRUE(plan_batches({}, {}).empty());
}

TEST(evaluation, mean_reports_its_standard_error) {
  Mean mean;
  for (const double x : {1.0, 4.0, 7.0, 8.0}) mean.add(x);
  EXPECT_EQ(mean.value(), 5);
  EXPECT_NEAR(mean.error(), std::sqrt((16 + 1 + 4 + 9) / 3.0 / 4), 1e-15);
  Mean one;
  one.add(3);
  EXPECT_TRUE(std::isnan(one.error()));
}

// A byte-level tokenizer: token 0 ends a document, and the other ids are 1 + the place in the byte alphabet.
struct Bytes {
  Tokenizer tokenizer{byte_vocabulary(std::vector<std::string>{"<|endoftext|>"})};
  TextSettings settings{tokenizer, tokenizer.size(), 16, tokenizer.eod(), 0};
  std::string text(const std::vector<Token>& tokens) const { return tokenizer.decode(tokens); }
};

TEST(evaluation, continuation_includes_preceding_white_space) {
  const Bytes bytes;
  for (const auto& [context, continuation] : {std::pair<std::string, std::string>{"ab ", "cd"}, {"ab", " cd"}}) {
    const Continued c = continued(context, continuation, bytes.settings, "here");
    EXPECT_EQ(bytes.text(c.passage.tokens), "ab c");
    EXPECT_EQ(c.tokens, 3);
    EXPECT_FALSE(c.truncated);
    EXPECT_EQ(c.passage.labels[0], ignored_label);
    EXPECT_EQ(bytes.text({c.passage.labels.begin() + 1, c.passage.labels.end()}), " cd");
  }
}

TEST(evaluation, empty_context_becomes_the_begin_token) {
  Bytes bytes;
  const Continued c = continued("  ", "cd", bytes.settings, "here");
  EXPECT_EQ(c.passage.tokens.front(), *bytes.tokenizer.eod());
  EXPECT_EQ(bytes.text(c.passage.labels), "  cd");
  bytes.settings.begin.reset();
  const Error error = error_of([&] { continued("", "cd", bytes.settings, "file:3"); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find("file:3"), std::string::npos) << error.what();
}

TEST(evaluation, too_long_context_loses_its_beginning) {
  const Bytes bytes;
  const Continued c = continued("abcdefghijklmnopqrst", " uv", bytes.settings, "here");
  EXPECT_TRUE(c.truncated);
  EXPECT_EQ(bytes.text(c.passage.tokens), "ghijklmnopqrst u");
  EXPECT_FALSE(continued("ghijklmnopqrst", " uv", bytes.settings, "here").truncated);
  EXPECT_EQ(error_of([&] { continued("a", " 23456789 23456789", bytes.settings, "here"); }).code, Exit::data);
}

// Scores as a model would return them, with one loss per passage.
std::vector<PassageScore> losses(std::initializer_list<double> values) {
  std::vector<PassageScore> scores;
  for (const double x : values) scores.push_back({x, x * x, 1, 0});
  return scores;
}

TEST(evaluation, choices_are_ranked_with_three_loss_normalisations) {
  const Folder folder;
  Bytes bytes;
  const auto file = folder.write("choices.jsonl", R"({"context":"a","choices":["bb","cccc"],"answer":0})"
                                                  "\n\n"
                                                  R"({"context":"a","choices":["bb","cccc"],"answer":1})"
                                                  "\n");
  const auto asked = choices_evaluation(file, " ", bytes.settings);
  ASSERT_EQ(asked->passages().count(), 4);
  // By sum the short choice has the lower loss. Per byte the long one has (3/2 > 5/4). Per token, with the delimiter as
  // a token, both are equal (3/3 = 5/5), and the first is chosen.
  const Conclusion c = asked->conclude(losses({3, 5, 3, 5}));
  EXPECT_EQ(c.results["acc"], 0.5);
  EXPECT_EQ(c.records[0]["chosen"], 0);
  EXPECT_EQ(c.records[0]["chosen_norm"], 1);
  EXPECT_EQ(c.records[0]["chosen_token"], 0);
  EXPECT_EQ(c.records[0]["bytes"], Json({2, 4}));
  EXPECT_EQ(c.records[0]["tokens"], Json({3, 5}));
}

TEST(evaluation, documents_words_and_bytes_are_counted_exactly) {
  const Folder folder;
  Bytes bytes;
  const auto file = folder.write("text.jsonl", R"({"text":" one  two\n"})"
                                               "\n"
                                               R"({"text":"three"})"
                                               "\n");
  const auto asked = text_evaluation({file}, {}, 16, bytes.settings);
  ASSERT_EQ(asked->passages().count(), 2);
  EXPECT_EQ(bytes.text(asked->passages().make(1).labels), "three");
  EXPECT_EQ(asked->passages().make(1).tokens.front(), *bytes.tokenizer.eod());
  std::vector<PassageScore> scores(2);
  scores[0] = {10, 12, 10, 0}, scores[1] = {5, 6, 5, 0};
  const Json r = asked->conclude(scores).results;
  EXPECT_EQ(r["words"], 3);
  EXPECT_EQ(r["bytes"], 15);
  EXPECT_EQ(r["loss"], 1);
  EXPECT_NEAR(r["word_perplexity"], std::exp(5), 1e-12);
  EXPECT_NEAR(r["bits_per_byte"], 1 / std::log(2), 1e-15);
  bytes.settings.limit = 1;
  EXPECT_EQ(text_evaluation({file}, {}, 16, bytes.settings)->passages().count(), 1);
}

TEST(evaluation, bad_line_is_reported_with_its_number) {
  const Folder folder;
  const Bytes bytes;
  const auto refused = [&](const std::string& line, const std::string& part, bool choices) {
    const std::string good = choices ? R"({"context":"a","choices":["b","c"],"answer":0})" : R"({"text":"a b"})";
    const auto file = folder.write("bad.jsonl", good + "\n\n" + line + "\n");
    const Error error = error_of([&] {
      if (choices) choices_evaluation(file, " ", bytes.settings);
      else last_word_evaluation(file, bytes.settings);
    });
    EXPECT_EQ(error.code, Exit::data) << line;
    EXPECT_NE(std::string(error.what()).find("bad.jsonl:3: "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  };
  refused("{\"text\": \"a", "not valid JSON", false);
  refused("[1]", "array", false);
  refused("{}", "no key 'text'", false);
  refused(R"({"text": 3})", "not a string", false);
  refused(R"({"text": "alone"})", "two words", false);
  refused(R"({"text": "alone  "})", "two words", false);
  refused("{\"text\": \"a \xff\"}", "not valid JSON", false);
  refused("{\"text\": \"a b\"}" + std::string("\0 c", 3), "not valid JSON at character 16: a zero byte", false);
  refused(R"({"context":"a","choices":["b"],"answer":0})", "at least two", true);
  refused(R"({"context":"a","choices":"bc","answer":0})", "at least two", true);
  refused(R"({"context":"a","choices":["b",2],"answer":0})", "not a string", true);
  refused(R"({"context":"a","choices":["b",""],"answer":0})", "empty", true);
  refused(R"({"context":"a","choices":["b","c"],"answer":2})", "0 to 1", true);
  refused(R"({"context":"a","choices":["b","c"],"answer":-1})", "0 to 1", true);
  refused(R"({"context":"a","choices":["b","c"],"answer":0.0})", "0 to 1", true);
  refused(R"({"context":"a","choices":["b","c"]})", "'answer'", true);
  refused(R"({"choices":["b","c"],"answer":0})", "no key 'context'", true);
  EXPECT_EQ(error_of([&] { last_word_evaluation(folder.write("empty.jsonl", "\n \n"), bytes.settings); }).code, Exit::data);
  EXPECT_EQ(error_of([&] { last_word_evaluation(folder / "none.jsonl", bytes.settings); }).code, Exit::missing);
}

}  // namespace
}  // namespace gyr::testing::evaluation_suite
