// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/sentence_order.hpp"

#include <algorithm>

#include "kernels/device/random.hpp"

namespace gyr {

namespace {

// Token range [first, last) of a text, without the padding after it.
struct Stretch {
  Index first, last;
};

std::vector<Stretch> texts_of(const SampleView& s, Index length) {
  std::vector<Stretch> texts;
  for (Index t = 0; t < length; ++t) {
    const bool begins = t == 0 || (!s.positions.empty() && s.positions[t] <= s.positions[t - 1]);
    if (begins) texts.push_back({t, t});
    if (s.learned[t]) texts.back().last = t + 1;
  }
  return texts;
}

// Token indices, between the first and the last token of a text, at which it may be split.
std::vector<Index> splits_of(const SampleView& s, const Stretch& text) {
  const Index inner = text.last - text.first - 2, quarter = inner / 4;
  std::vector<Index> splits;
  for (Index t = text.first + 1 + std::max<Index>(1, quarter); t < text.last - 1 - quarter; ++t)
    if (s.begins.empty() || s.begins[t]) splits.push_back(t);
  return splits;
}

}  // namespace

OrderedHalves order_halves(std::uint64_t seed, const SampleView& s) {
  const Index length = Index(s.tokens.size()) - 1;
  OrderedHalves h{{s.tokens.begin(), s.tokens.end()},
                  {s.learned.begin(), s.learned.end()},
                  {s.begins.begin(), s.begins.end()},
                  std::vector<Token>(length, ignored_label),
                  std::vector<Token>(length, 0)};
  const Stream rolls(seed, fmt::format("order of sample {}", s.number));
  Index rolled = 0;
  for (const Stretch& text : texts_of(s, length)) {
    const std::vector<Index> splits = splits_of(s, text);
    if (splits.empty()) continue;
    const Index split_at = splits[std::min(splits.size() - 1, std::size_t(rolls.uniform(rolled) * double(splits.size())))];
    const bool swaps = rolls.uniform(rolled + 1) < 0.5;
    rolled += 2;
    const Index first = text.first + 1, last = text.last - 1;
    if (swaps) {
      const auto swap_halves = [&](auto& x) {
        if (!x.empty()) std::rotate(x.begin() + first, x.begin() + split_at, x.begin() + last);
      };
      swap_halves(h.tokens), swap_halves(h.learned), swap_halves(h.begins);
      if (!h.begins.empty()) h.begins[first + last - split_at] = 1;  // the token that was first begins a word there
    }
    h.order[text.first] = swaps ? swapped : in_order;
    std::fill(h.types.begin() + (swaps ? first + last - split_at : split_at), h.types.begin() + text.last, 1);
  }
  return h;
}

}  // namespace gyr
