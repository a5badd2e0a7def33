// SPDX-License-Identifier: BSD-3-Clause
// Pairs of a source, which an encoder reads, and the text that a decoder has to write of it: translation, summaries. Both end with a token of their
// own, which is put there where the data have none. What is longer than its room loses what stands in front of that.
//   source   a b c </s>        text   x y </s>, read as <start> x y
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

struct Seq2Seq {
  Index source_length = 0;  // room for a source, its end among it; 0: as for a text
  Token end_token = 1;      // ends source and text
};

// The text of a sample in room for all but the last of its tokens, with padding behind it, and its source, with none.
Labelled label_pair(const Seq2Seq&, const SampleView&);

std::shared_ptr<const Objective> seq2seq(const Seq2Seq& = {});  // the objective

}  // namespace gyr
