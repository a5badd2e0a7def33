// SPDX-License-Identifier: BSD-3-Clause
// How a text longer than a model's window is scored.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/base/tensor.hpp"

namespace gyr {

// Reads tokens [first, last) and scores the predictions of tokens [scored, last + 1).
struct Window {
  Index first, last, scored;
};

// Of y_0 .. y_n every token but y_0 is scored once. The first window reads y_0 .. y_{W-1} and scores all that follow them; each further one
// ends S tokens later (the last one at y_{n-1}), reads the W tokens before its end and scores only those not scored yet: all of them see at
// least W - S + 1 tokens, or the whole beginning of the text. S = W is fastest; S = 1 gives every token all the context there can be.
inline std::vector<Window> strided_windows(Index tokens /* n + 1 */, Index window /* W */, Index stride /* S */) {
  std::vector<Window> list;
  for (Index scored = 1; scored < tokens; scored = list.back().last + 1) {
    const Index last = std::min(tokens - 1, list.empty() ? window : list.back().last + stride);
    list.push_back({std::max<Index>(0, last - window), last, scored});
  }
  return list;
}

}  // namespace gyr
