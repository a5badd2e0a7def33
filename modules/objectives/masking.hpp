// SPDX-License-Identifier: BSD-3-Clause
// Which tokens of a sample a model has to find again, and what stands in their place (Devlin et al., "BERT", 2019; whole words and n-grams as in
// Joshi et al., "SpanBERT", 2020). A function of the seed and the sample's number alone.
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

struct Masking {
  double share = 0.15;    // of the tokens of a sample that are chosen, rounded; one at least
  Index max_ngram = 1;    // neighbouring words that are chosen together: n of them with a probability proportional to 1/n
  Token mask_token = -1;  // what hides a token
  std::uint64_t seed = 1234;
  bool head_bias = true;        // of the layer in front of the output matrix
  bool sentence_order = false;  // whether halves stand in their order is told too
};

// Of the first L tokens. Candidates are tokens that are to be learned, word by word; no more than their share, or one, is chosen, and a word whole
// or not at all. A chosen token becomes the mask in 8 of 10 cases, any token in one, and stays in one.
Labelled mask_tokens(const Masking&, const SampleView&);

std::shared_ptr<const Objective> masked_tokens(const Masking& = {});  // the objective
const Masking* masking_of(const Objective&);                          // null where it is another one

}  // namespace gyr
