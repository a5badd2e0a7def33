// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/masking.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/device/random.hpp"

namespace gyr {

namespace {

constexpr double masked = 0.8, replaced = 0.1;

// Contiguous tokens of one word.
struct Word {
  Index first, count;
};

std::vector<Word> words_of(const SampleView& s, Index length) {
  std::vector<Word> words;
  for (Index t = 0; t < length; ++t) {
    if (!s.learned[t]) continue;
    const bool goes_on = t > 0 && s.learned[t - 1] && !s.begins.empty() && !s.begins[t];
    if (goes_on) ++words.back().count;
    else words.push_back({t, 1});
  }
  return words;
}

// Random values of a sample, drawn one after the other.
class Rolls {
 public:
  Rolls(std::uint64_t seed, Index number) : stream_(seed, fmt::format("masks of sample {}", number)) {}
  double next() { return stream_.uniform(rolled_++); }
  Index below(Index n) { return std::min(n - 1, Index(next() * double(n))); }

 private:
  Stream stream_;
  Index rolled_ = 0;
};

std::vector<Index> shuffled(Index n, Rolls& rolls) {
  std::vector<Index> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (Index i = n - 1; i > 0; --i) std::swap(order[i], order[rolls.below(i + 1)]);
  return order;
}

Index draw_ngram(Index most, Rolls& rolls) {
  double full = 0;
  for (Index n = 1; n <= most; ++n) full += 1 / double(n);
  double rest = rolls.next() * full;
  for (Index n = 1; n < most; ++n)
    if ((rest -= 1 / double(n)) < 0) return n;
  return most;
}

// Number of words from w on that can be masked together: adjacent, not yet chosen, at most n words with at most
// `tokens` tokens.
Index fitting(const std::vector<Word>& words, const std::vector<bool>& chosen, Index w, Index n, Index tokens) {
  Index taken = 0;
  for (Index i = w; taken < n && i < Index(words.size()) && !chosen[i]; ++i, ++taken) {
    if (i > w && words[i].first != words[i - 1].first + words[i - 1].count) break;
    if ((tokens -= words[i].count) < 0) break;
  }
  return taken;
}

std::vector<bool> choose(const Masking& m, const std::vector<Word>& words, Rolls& rolls) {
  Index tokens = 0;
  for (const Word& word : words) tokens += word.count;
  Index left = tokens == 0 ? 0 : std::max<Index>(1, std::llround(m.fraction * double(tokens)));
  std::vector<bool> chosen(words.size(), false);
  for (const Index w : shuffled(Index(words.size()), rolls)) {
    if (left == 0) break;
    const Index n = m.max_ngram > 1 ? draw_ngram(m.max_ngram, rolls) : 1;
    for (Index i = w, end = w + fitting(words, chosen, w, n, left); i < end; ++i) chosen[i] = true, left -= words[i].count;
  }
  return chosen;
}

}  // namespace

Labelled mask_tokens(const Masking& m, const SampleView& s) {
  const Index length = Index(s.tokens.size()) - 1;
  Labelled l{{s.tokens.begin(), s.tokens.end() - 1}, std::vector<Token>(length, ignored_label)};
  const std::vector<Word> words = words_of(s, length);
  Rolls rolls(m.seed, s.number);
  const std::vector<bool> chosen = choose(m, words, rolls);
  for (std::size_t w = 0; w < words.size(); ++w)
    for (Index t = words[w].first; chosen[w] && t < words[w].first + words[w].count; ++t) {
      l.labels[t] = l.tokens[t];
      const double fate = rolls.next();
      if (fate < masked) l.tokens[t] = m.mask_token;
      else if (fate < masked + replaced) l.tokens[t] = Token(rolls.below(s.vocab_size));
    }
  return l;
}

}  // namespace gyr
