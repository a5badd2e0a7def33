// SPDX-License-Identifier: BSD-3-Clause
// Strided windows, which score a text that is longer than a model's window.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/base/tensor.hpp"

namespace gyr {

// Reads tokens [first, last) and scores the predictions of tokens [scored, last + 1).
struct Window {
  Index first, last, scored;
};

// Scores every token of y_0 .. y_n but y_0 once. The first window reads y_0 .. y_{W-1} and scores the token after each
// of them. Each further one ends S tokens later (the last one at y_{n-1}), reads the W tokens before its end and scores
// only the tokens not scored yet. Each token is predicted from at least W - S + 1 tokens, or from the full beginning of
// the text. S = W is fastest; S = 1 gives every token the longest possible context.
inline std::vector<Window> strided_windows(Index tokens /* n + 1 */, Index window /* W */, Index stride /* S */) {
  std::vector<Window> list;
  for (Index scored = 1; scored < tokens; scored = list.back().last + 1) {
    const Index last = std::min(tokens - 1, list.empty() ? window : list.back().last + stride);
    list.push_back({std::max<Index>(0, last - window), last, scored});
  }
  return list;
}

}  // namespace gyr
