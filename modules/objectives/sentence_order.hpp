// SPDX-License-Identifier: BSD-3-Clause
// Whether the two halves of a text stand in their order (Lan et al., "ALBERT", 2020), told by its first token beside masked tokens. A function of
// the seed and the sample's number alone.
//   [CLS] a b c d e [SEP]   cut behind b   [CLS] a b c d e [SEP]   in order     [CLS] c d e a b [SEP]   swapped
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

inline constexpr Token in_order = 0, swapped = 1;  // classes, as Hugging Face numbers them

// A sample whose texts are swapped or not.
struct OrderedHalves {
  std::vector<Token> tokens;                  // (L + 1)
  std::vector<std::uint8_t> learned, begins;  // (L + 1), or empty, as in SampleView; they go where their tokens go
  std::vector<Token> order;                   // (L) what a text is, at its first token; ignored_label elsewhere
  std::vector<Token> types;                   // (L) 1 of tokens of the half that stands behind, and of the text's last token; 0 of the others
};

// Of the first L tokens. Every separate document is a text of its own, else the whole sample is; padding behind it belongs to none. First and last
// token stay where they are, the rest is cut where a word of its middle half begins. A text that has none such stays as it is and is not told.
OrderedHalves order_halves(std::uint64_t seed, const SampleView&);

}  // namespace gyr
