// SPDX-License-Identifier: BSD-3-Clause
// Sentence-order prediction (Lan et al., "ALBERT", 2020), trained together with masked tokens. The two halves of a text are swapped or not, and its
// first token classifies which. A function of only the seed and the index of the sample.
//   [CLS] a b c d e [SEP]   split after b:   [CLS] a b c d e [SEP]   in order     [CLS] c d e a b [SEP]   swapped
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

inline const ValueName<Token> order_labels{"labels of sentence order"};  // (rows) order of a text at its first token; ignored_label elsewhere
inline constexpr Token in_order = 0, swapped = 1;                        // class ids of sentence-order prediction, as in Hugging Face

// A sample after swapping the halves of some of its texts.
struct OrderedHalves {
  std::vector<Token> tokens;                  // (L + 1) token ids after the swaps
  std::vector<std::uint8_t> learned, begins;  // (L + 1), or empty, as in SampleView; permuted with the tokens
  std::vector<Token> order;                   // (L) class of a text at its first token; ignored_label elsewhere
  std::vector<Token> types;                   // (L) token type: 1 for the half that comes second and the last token of a text, otherwise 0
};

// Uses the first L tokens. Every separate document is a text, otherwise the full sample is one; padding belongs to no
// text. The first and the last token of a text stay in place. The rest is split at the start of a word in its middle
// half. A text without such a word is not changed and has no order label.
OrderedHalves order_halves(std::uint64_t seed, const SampleView&);

}  // namespace gyr
