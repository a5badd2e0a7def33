// SPDX-License-Identifier: BSD-3-Clause
// Texts of a sample, and pairs of them that a loss compares: one that is chosen and one that is rejected.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/cross_entropy.hpp"

namespace gyr {

// A text that is alone in a sample, cut at the end where it is too long: its tokens there, its number in the data, and what a reference model says of
// it: the sum of ln p of its learned tokens, 0 where nobody has asked one.
struct TextSpan {
  Index first = 0, count = 0;
  std::int64_t number = 0;
  double reference = 0;
};

// Of one sequence or several, each of which has room for as many pairs.
struct TextPairs {
  std::vector<Token> text_of_row;      // of pair p the chosen text is 2 p and the rejected one 2 p + 1; -1: the row predicts no token of either
  std::vector<Token> label_of_pair;    // 0, the column of the chosen text; ignored_label where there is no such pair
  std::vector<double> reference = {};  // of each text

  Index room() const { return Index(label_of_pair.size()); }
  // Behind these come those of another sequence.
  void append(const TextPairs& next) {
    const Token texts = Token(2 * room());
    for (const Token text : next.text_of_row) text_of_row.push_back(text < 0 ? text : texts + text);
    label_of_pair.insert(label_of_pair.end(), next.label_of_pair.begin(), next.label_of_pair.end());
    reference.insert(reference.end(), next.reference.begin(), next.reference.end());
  }
};

}  // namespace gyr
