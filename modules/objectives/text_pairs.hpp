// SPDX-License-Identifier: BSD-3-Clause
// Texts of a sample, and the pairs of a chosen and a rejected text that a preference loss (DPO) compares.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/cross_entropy.hpp"

namespace gyr {

// A complete text of a sample, truncated at the end if it is too long: its tokens there, its index in the data, and its
// log-probability under the reference model (sum of ln p of its target tokens; 0 without a reference model).
struct TextSpan {
  Index first = 0, count = 0;
  std::int64_t number = 0;
  double reference = 0;
};

// Pairs of one or more sequences, each of which has capacity for the same number of pairs.
struct TextPairs {
  // per row: 2 p for the chosen text of pair p, 2 p + 1 for the rejected one; -1: the row predicts no token of either
  std::vector<Token> text_of_row;
  std::vector<Token> label_of_pair;    // 0, the column of the chosen text; ignored_label for an unused pair
  std::vector<double> reference = {};  // log-probability under the reference model, two per pair: chosen, rejected

  Index capacity() const { return Index(label_of_pair.size()); }
  // Appends the pairs of another sequence.
  void append(const TextPairs& next) {
    const Token texts = Token(2 * capacity());
    for (const Token text : next.text_of_row) text_of_row.push_back(text < 0 ? text : texts + text);
    label_of_pair.insert(label_of_pair.end(), next.label_of_pair.begin(), next.label_of_pair.end());
    reference.insert(reference.end(), next.reference.begin(), next.reference.end());
  }
};

}  // namespace gyr
