// SPDX-License-Identifier: BSD-3-Clause
// Objective seq2seq: pairs of an encoder input (source) and the text that the decoder has to generate from it, as in translation and summarisation.
// Both end with an end token, which is appended if the data has none. Inputs that are too long are truncated before the end token.
//   source   a b c </s>        text   x y </s>, with decoder input <start> x y
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

struct Seq2Seq {
  Index source_length = 0;  // maximum length of the encoder input with its end token; 0: as for the text
  Token end_token = 1;      // id of the token that ends encoder input and text
};

// Labels one pair: the text, padded to all but the last token of the sample, and the encoder input without padding.
Labelled label_pair(const Seq2Seq&, const SampleView&);

std::shared_ptr<const Objective> seq2seq(const Seq2Seq& = {});  // creates the seq2seq objective

}  // namespace gyr
