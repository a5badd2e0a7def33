// SPDX-License-Identifier: BSD-3-Clause
// The page of a text with its neighbours: it shows all tokens of drawn texts, odd bytes included, marks exactly the shared ones,
// and needs no other file.
#include "src/samples/neighbours_page.hpp"

#include <cmath>
#include <random>

#include "regression/support/html.hpp"
#include "regression/support/seed.hpp"
#include "src/samples/answer_html.hpp"

namespace gyr::testing::neighbours_page_suite {
namespace {

using Tokens = std::vector<std::int32_t>;

const Tokenizer& bytes() {
  static const Tokenizer all(byte_vocabulary({}));
  return all;
}

// Few distinct characters, some of them markup or no UTF-8, so that texts share tokens.
std::string drawn_bytes(std::mt19937& random, std::size_t most) {
  static const std::string some[] = {"a",
                                     "b",
                                     " ",
                                     "\n",
                                     "<",
                                     "</script>",
                                     "&",
                                     "\"",
                                     "'",
                                     "@BODY@",
                                     "@NUMBERS@",
                                     "\x1b[31m",
                                     "\xff",
                                     "\xc3\xa9",
                                     "\xe2\x80\xae",
                                     std::string(1, '\0')};
  std::string text;
  for (std::size_t n = 1 + random() % most; n > 0; --n) text += some[random() % std::size(some)];
  return text;
}

ShownText drawn_text(std::mt19937& random, bool scored) {
  ShownText text{.name = drawn_bytes(random, 5),
                 .project = drawn_bytes(random, 5),
                 .model = scored ? "run<1>" : "",
                 .tokens = bytes().encode(drawn_bytes(random, 60)),
                 .chunks = {},
                 .special = {std::int32_t(random() % 256)},
                 .with = {},
                 .without = {}};
  const std::size_t m = 1 + random() % 20;
  for (std::size_t first = 0; first < text.tokens.size(); first += m) {
    ShownChunk& c = text.chunks.emplace_back(ShownChunk{first, std::min(first + m, text.tokens.size()), {}});
    for (std::size_t n = random() % 3; n > 0; --n) {
      const Tokens tokens = bytes().encode(drawn_bytes(random, 9));
      c.neighbours.push_back({std::int64_t(random() % 99), 1.5, "document 1 of " + drawn_bytes(random, 3), tokens, 1 + random() % tokens.size()});
    }
  }
  for (std::size_t t = 0; scored && t < text.tokens.size(); ++t)
    text.with.push_back(t == 0 ? NAN : double(random() % 900) / 128), text.without.push_back(t == 0 ? NAN : double(random() % 900) / 128);
  return text;
}

// Parts of a page that begin with `begin` and end with `end`, without both.
std::vector<std::string> parts(const std::string& html, const std::string& begin, const std::string& end) {
  std::vector<std::string> all;
  for (std::size_t at = html.find(begin); at != std::string::npos; at = html.find(begin, at)) {
    at += begin.size();
    all.push_back(html.substr(at, html.find(end, at) - at));
  }
  return all;
}

std::string without_tags(const std::string& html) { return std::regex_replace(html, std::regex("<[^<>]*>"), ""); }

std::string shown(const Tokens& tokens, std::size_t begin, std::size_t end) {
  std::string text;
  for (const TokenText& t : token_texts(&bytes(), tokens, begin, end)) text += html_text(t.text);
  return text;
}

// Texts of the elements that have a token of `others` which is not special.
std::vector<std::string> expected_marks(const ShownText& text, const Tokens& tokens, std::size_t begin, std::size_t end, const Tokens& others) {
  std::vector<std::string> marks;
  for (const TokenText& t : token_texts(&bytes(), tokens, begin, end)) {
    bool shared = false;
    for (std::size_t i = t.first; i < t.first + t.count; ++i)
      for (const std::int32_t other : others) shared = shared || (other == tokens[i] && !text.special.contains(other));
    if (shared) marks.push_back(html_text(t.text));
  }
  return marks;
}

}  // namespace

TEST(neighbours_page, all_tokens_are_shown_and_shared_ones_marked) {
  std::mt19937 random(seed_of_run());
  std::size_t marks = 0;
  for (int draw = 0; draw < 30; ++draw) {
    const ShownText text = drawn_text(random, draw % 2 == 0);
    const std::string html = neighbours_page(text, &bytes());
    expect_well_formed(html);
    expect_self_contained(html);
    EXPECT_EQ(html.find('\x1b'), std::string::npos);
    const auto sections = parts(html, "<section id=", "</section>");
    ASSERT_EQ(sections.size(), text.chunks.size());
    for (std::size_t c = 0; c < sections.size(); ++c) {
      const ShownChunk& chunk = text.chunks[c];
      const auto texts = parts(sections[c], "<div class=\"text\">", "</div>");
      ASSERT_EQ(texts.size(), 1 + chunk.neighbours.size());
      const Tokens own(text.tokens.begin() + std::ptrdiff_t(chunk.first), text.tokens.begin() + std::ptrdiff_t(chunk.last));
      Tokens of_any;
      EXPECT_EQ(without_tags(texts[0]), shown(text.tokens, chunk.first, chunk.last));
      for (std::size_t n = 0; n < chunk.neighbours.size(); ++n) {
        const ShownNeighbour& neighbour = chunk.neighbours[n];
        EXPECT_EQ(without_tags(texts[n + 1]),
                  shown(neighbour.tokens, 0, neighbour.chunk) + shown(neighbour.tokens, neighbour.chunk, neighbour.tokens.size()));
        EXPECT_EQ(parts(texts[n + 1], "<mark>", "</mark>"), expected_marks(text, neighbour.tokens, 0, neighbour.chunk, own));
        of_any.insert(of_any.end(), neighbour.tokens.begin(), neighbour.tokens.begin() + std::ptrdiff_t(neighbour.chunk));
      }
      const auto expected = expected_marks(text, text.tokens, chunk.first, chunk.last, of_any);
      EXPECT_EQ(parts(texts[0], "<mark>", "</mark>"), expected);
      marks += expected.size();
    }
  }
  EXPECT_GT(marks, 0u);
}

TEST(neighbours_page, values_are_losses_and_their_differences) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 20; ++draw) {
    const ShownText text = drawn_text(random, true);
    const Json data = data_of(neighbours_page(text, &bytes()));
    ASSERT_EQ(data["chunks"].size(), text.chunks.size());
    for (std::size_t c = 0; c < text.chunks.size(); ++c) {
      std::size_t i = 0;
      for (const TokenText& t : token_texts(&bytes(), text.tokens, text.chunks[c].first, text.chunks[c].last)) {
        double with = 0, without = 0;
        for (std::size_t k = t.first; k < t.first + t.count; ++k) with += text.with[k], without += text.without[k];
        const Json& values = data["chunks"][c];
        ASSERT_EQ(values["with"][i].is_null(), std::isnan(with));
        ASSERT_EQ(values["gain"][i].is_null(), std::isnan(with));
        if (!std::isnan(with)) {
          EXPECT_NEAR(values["with"][i].get<double>(), with, 0.01);
          EXPECT_NEAR(values["gain"][i].get<double>(), without - with, 0.01);
        }
        ++i;
      }
      EXPECT_EQ(data["chunks"][c]["without"].size(), i);
    }
  }
  EXPECT_EQ(data_of(neighbours_page(drawn_text(random, false), &bytes()))["shadings"].size(), 0u);
}

}  // namespace gyr::testing::neighbours_page_suite
