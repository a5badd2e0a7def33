// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/words.hpp"

#include <algorithm>

namespace gyr {

std::vector<std::uint8_t> word_begins(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens, std::span<std::uint8_t> learned) {
  std::vector<std::uint8_t> begins(tokens.size(), 1);
  std::size_t first = 0;
  for (std::size_t t = 0; t <= tokens.size(); ++t) {
    const bool separate = t == tokens.size() || !tokenizer.has(tokens[t]) || tokenizer.is_special(tokens[t]);
    if (!separate) continue;
    const auto here = tokenizer.word_begins(tokens.subspan(first, t - first));
    std::copy(here.begin(), here.end(), begins.begin() + std::ptrdiff_t(first));
    if (t < tokens.size()) learned[t] = 0;
    first = t + 1;
  }
  return begins;
}

}  // namespace gyr
