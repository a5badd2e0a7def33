// SPDX-License-Identifier: BSD-3-Clause
// Masked language modelling: how many tokens are masked, which ones, what replaces them, and that only the seed and the
// sample number decide this. Word boundaries of a tokenizer.
#include "modules/objectives/masking.hpp"

#include <cmath>
#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/data/words.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::masking_suite {
namespace {

constexpr Token hidden = 4;
constexpr Index vocabulary = 1000;

struct Drawn {
  std::vector<Token> tokens;
  std::vector<std::uint8_t> learned, begins;
  Index number;
  SampleView view() const { return {tokens, learned, begins, number, vocabulary}; }
};

// A random sample. Each token begins a word with probability 1 / longest, and is excluded from the loss with
// probability `lost`.
Drawn drawn(std::mt19937_64& random, Index length, Index longest, double lost, Index number) {
  std::uniform_real_distribution<double> uniform;
  Drawn d{{}, {}, {}, number};
  for (Index t = 0, left = 0; t <= length; ++t, --left) {
    if (left <= 0) left = 1 + Index(random() % std::uint64_t(longest));
    d.tokens.push_back(Token(10 + random() % (vocabulary - 10)));
    d.begins.push_back(d.begins.empty() || left <= 0 ? 1 : 0);
    d.learned.push_back(uniform(random) >= lost);
  }
  for (Index t = 0; t <= length; ++t) d.begins[t] = t == 0 || random() % std::uint64_t(longest) == 0;
  return d;
}

// Token range [first, last) of each word: adjacent target tokens, split where a word begins.
std::vector<Span> words_of(const Drawn& d) {
  std::vector<Span> words;
  for (Index t = 0; t + 1 < Index(d.tokens.size()); ++t) {
    if (!d.learned[t]) continue;
    if (words.empty() || words.back().last != t || d.begins[t]) words.push_back({t, t});
    words.back().last = t + 1;
  }
  return words;
}

bool chosen(const Labelled& l, Index t) { return l.labels[t] != ignored_label; }

TEST(masking, masks_whole_words_up_to_the_masking_ratio) {
  const std::uint64_t seed = 3;
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 400; ++trial) {
    SCOPED_TRACE(fmt::format("seed {} trial {}", seed, trial));
    const Index longest = 1 + Index(random() % 5), ngram = 1 + Index(random() % 4);
    const Drawn d = drawn(random, 1 + Index(random() % 200), longest, trial % 3 == 0 ? 0.2 : 0, trial);
    const Labelled l = mask_tokens({.max_ngram = ngram, .mask_token = hidden}, d.view());
    ASSERT_EQ(l.tokens.size(), d.tokens.size() - 1);
    Index learned = 0, found = 0, shortest_left = Index(d.tokens.size());
    for (Index t = 0; t < Index(l.tokens.size()); ++t) {
      learned += d.learned[t], found += chosen(l, t);
      if (chosen(l, t)) EXPECT_EQ(l.labels[t], d.tokens[t]);
      else EXPECT_EQ(l.tokens[t], d.tokens[t]);
      EXPECT_TRUE(d.learned[t] || !chosen(l, t)) << t;
    }
    for (const Span& word : words_of(d)) {
      for (Index t = word.first; t < word.last; ++t) EXPECT_EQ(chosen(l, t), chosen(l, word.first)) << "a word is only partly masked at token " << t;
      if (!chosen(l, word.first)) shortest_left = std::min(shortest_left, word.size());
    }
    const Index wanted = learned == 0 ? 0 : std::max<Index>(1, std::llround(0.15 * double(learned)));
    EXPECT_LE(found, wanted);
    EXPECT_TRUE(found == wanted || found + shortest_left > wanted)
        << found << " tokens are masked of " << wanted << ", and a word of " << shortest_left << " would fit";
  }
}

// About 200 000 masked tokens. Each fraction must be within five standard deviations.
TEST(masking, masked_random_kept_tokens_are_80_10_10) {
  std::mt19937_64 random(5);
  double found = 0, masked = 0, same = 0;
  std::vector<double> by_tenth(10, 0);
  for (Index number = 0; number < 2600; ++number) {
    const Drawn d = drawn(random, 512, 1, 0, number);
    const Labelled l = mask_tokens({.mask_token = hidden}, d.view());
    for (Index t = 0; t < 512; ++t)
      if (chosen(l, t)) {
        ++found, masked += l.tokens[t] == hidden, same += l.tokens[t] == d.tokens[t];
        if (l.tokens[t] != hidden && l.tokens[t] != d.tokens[t]) ++by_tenth[std::size_t(l.tokens[t]) * 10 / vocabulary];
      }
  }
  const auto expect = [&](double count, double fraction, const char* what) {
    EXPECT_NEAR(count / found, fraction, 5 * std::sqrt(fraction * (1 - fraction) / found)) << what;
  };
  EXPECT_EQ(found, 2600 * 77);  // round(0.15 * 512) masked tokens per sequence
  expect(masked, 0.8 + 0.1 / vocabulary, "replaced by the mask token");
  expect(same, 0.1 + 0.1 / vocabulary, "unchanged");
  for (const double tenth : by_tenth) expect(tenth, 0.01, "replaced by a random token, from each tenth of the vocabulary");
}

// Lengths of masked runs of words: n words with probability proportional to 1 / n. Few runs touch, because only 4 of
// 1000 tokens are masked.
TEST(masking, ngram_lengths_follow_one_over_n) {
  std::mt19937_64 random(11);
  std::vector<double> runs(4, 0);
  for (Index number = 0; number < 4000; ++number) {
    const Drawn d = drawn(random, 1000, 1, 0, number);
    const Labelled l = mask_tokens({.fraction = 0.004, .max_ngram = 3, .mask_token = hidden}, d.view());
    Index run = 0, groups = 0;
    std::vector<Index> here;
    for (Index t = 0; t <= 1000; ++t) {
      if (t < 1000 && chosen(l, t)) ++run;
      else if (run > 0) here.push_back(run), run = 0, ++groups;
    }
    // Runs of more than three words are several n-grams that touch; they are not counted.
    for (const Index n : here)
      if (n <= 3) ++runs[n];
  }
  EXPECT_GT(runs[1], runs[2]);
  EXPECT_GT(runs[2], runs[3] * 0.8);
  EXPECT_GT(runs[3], 300);
}

TEST(masking, depends_only_on_seed_and_sample_number) {
  std::mt19937_64 random(13);
  const Drawn d = drawn(random, 300, 3, 0.1, 17);
  const Masking m{.max_ngram = 3, .mask_token = hidden};
  const Labelled one = mask_tokens(m, d.view()), again = mask_tokens(m, d.view());
  EXPECT_EQ(one.tokens, again.tokens);
  EXPECT_EQ(one.labels, again.labels);
  Drawn other = d;
  other.number = 18;
  EXPECT_NE(mask_tokens(m, other.view()).labels, one.labels);
  Masking reseeded = m;
  reseeded.seed += 1;
  EXPECT_NE(mask_tokens(reseeded, d.view()).labels, one.labels);
}

// The samples of a step depend neither on the number of data-parallel ranks nor on the sample at which a run begins.
TEST(masking, samples_are_masked_identically_on_any_grid) {
  ModelConfig model;
  model.vocab_size = vocabulary, model.objective = masked_tokens({.mask_token = hidden});
  const SampleSource source = [](Index number) {
    std::mt19937_64 random{std::uint64_t(number)};
    const Drawn d = drawn(random, 40, 1, 0, number);
    return Sample{d.tokens, {}, d.learned, d.begins};
  };
  const MicroBatch all = micro_batch_of(source, model, 8, 8, 40);
  MicroBatch parts;
  for (const Index first : {8, 12, 14}) {
    const MicroBatch part = micro_batch_of(source, model, first, first == 8 ? 4 : 2, 40);
    parts.tokens.insert(parts.tokens.end(), part.tokens.begin(), part.tokens.end());
    parts.labels.insert(parts.labels.end(), part.labels.begin(), part.labels.end());
  }
  EXPECT_EQ(parts.tokens, all.tokens);
  EXPECT_EQ(parts.labels, all.labels);
  EXPECT_EQ(std::count(all.labels.begin(), all.labels.end(), ignored_label), 8 * (40 - 6));
}

// Training reserves memory for most_labels() labels per sequence. No sample has more, and some sample has exactly as
// many.
TEST(masking, largest_label_count_equals_the_declared_bound) {
  std::mt19937_64 random(19);
  for (const double fraction : {0.001, 0.15, 0.35, 0.5, 1.0})
    for (const Index length : {1, 3, 10, 41}) {
      const auto objective = masked_tokens({.fraction = fraction, .max_ngram = 3, .mask_token = hidden});
      Index largest_rank = 0;
      for (Index number = 0; number < 60; ++number) {
        const Drawn d = drawn(random, length, 1 + number % 3, 0.3 * double(number % 2), number);
        const Labelled l = objective->label(d.view());
        largest_rank = std::max(largest_rank, Index(l.labels.size()) - std::count(l.labels.begin(), l.labels.end(), ignored_label));
      }
      EXPECT_LE(largest_rank, objective->most_labels(length)) << fraction << " of " << length;
      EXPECT_EQ(largest_rank, objective->most_labels(length)) << fraction << " of " << length;
    }
  EXPECT_EQ(next_token()->most_labels(41), 41);
}

TEST(masking, words_begin_where_tokenizer_splits_the_text) {
  Vocabulary v = byte_vocabulary(std::vector<std::string>{"<|end|>"});
  const Tokenizer tokenizer(std::move(v));
  const std::string text = "two words, 3";
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  ASSERT_EQ(ids.size(), text.size());
  ids.push_back(0);
  for (const char c : std::string("ab")) ids.push_back(tokenizer.encode(std::string(1, c))[0]);
  std::vector<std::uint8_t> learned(ids.size(), 1);
  const auto begins = word_begins(tokenizer, ids, learned);
  std::string marks;
  for (const auto b : begins) marks += b ? '1' : '0';
  EXPECT_EQ(marks,
            "100100000110110"
            "");
  std::string kept;
  for (const auto l : learned) kept += l ? '1' : '0';
  EXPECT_EQ(kept, "111111111111011");
}

TEST(masking, missing_mask_token_is_a_configuration_error) {
  ModelConfig model;
  model.vocab_size = 20;
  for (const Token token : {-1, 20}) {
    const Error error = error_of([&] { masked_tokens({.mask_token = token})->check_training(model); });
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find(fmt::format("train.mlm.mask_token = {}", token)), std::string::npos) << error.what();
  }
  masked_tokens({.mask_token = 19})->check_training(model);
}

}  // namespace
}  // namespace gyr::testing::masking_suite
