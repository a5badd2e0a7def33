// SPDX-License-Identifier: BSD-3-Clause
// Texts of a sample, and the pairs of a chosen and a rejected text that a preference loss (DPO) compares.
#pragma once

#include <cstdint>

#include "kernels/ops/cross_entropy.hpp"
#include "modules/pass/named_values.hpp"

namespace gyr {

// A complete text of a sample, truncated at the end if it is too long: its tokens there, its index in the data, and its
// log-probability under the reference model (sum of ln p of its target tokens; 0 without a reference model).
struct TextSpan {
  Index first = 0, count = 0;
  std::int64_t number = 0;
  double reference = 0;
};

// Fields of a sequence with room for P pairs.
// (rows) 2 p for a row of the chosen text of pair p, 2 p + 1 for one of the rejected text; -1: the row predicts no token of either
inline const ValueName<Token> text_of_row{"text index of rows"};
inline const ValueName<Token> label_of_pair{"labels of pairs"};  // (P) 0, the column of the chosen text; ignored_label for an unused pair
inline const ValueName<double> reference_of_text{"reference log-probabilities of texts"};  // (2 P) chosen and rejected text of each pair
inline std::vector<NamedField> pair_fields(Index P) {
  return {ValueField<Token>{text_of_row, -1, 0, 2 * P}, ValueField<Token>{label_of_pair, ignored_label, P},
          ValueField<double>{reference_of_text, 0, 2 * P}};
}

}  // namespace gyr
