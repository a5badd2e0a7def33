// SPDX-License-Identifier: BSD-3-Clause
// Selection of the tokens to mask, and their replacement (Devlin et al., "BERT", 2019; whole words and n-grams as in
// Joshi et al., "SpanBERT", 2020). A function of the seed and the sample's number only.
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

struct Masking {
  double fraction = 0.15;  // fraction of a sample's tokens to mask, rounded; at least one token
  Index max_ngram = 1;     // maximum number of neighbouring words masked together; n words with a probability proportional to 1/n
  Token mask_token = -1;   // id of the mask token; -1: unknown
  std::uint64_t seed = 1234;
  bool head_bias = true;        // bias of the linear layer before the output matrix
  bool sentence_order = false;  // true: sentence-order prediction is trained too
};

// Masks some of the sample's first L tokens. Candidates are words of target tokens; a word is masked completely or not
// at all, and no more than `fraction` of the tokens (at least one) are masked. A selected token becomes the mask token in
// 8 of 10 cases, a random token in one, and is unchanged in one.
Labelled mask_tokens(const Masking&, const SampleView&);

std::shared_ptr<const Objective> masked_tokens(const Masking& = {});  // creates the masked language modelling objective
const Masking* masking_of(const Objective&);                          // null if the objective is not masked language modelling

}  // namespace gyr
