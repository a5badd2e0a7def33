// SPDX-License-Identifier: BSD-3-Clause
// Input and output of an evaluation's forward pass: passages are runs of tokens of which some are to be predicted.
#pragma once

#include <functional>
#include <vector>

#include "kernels/ops/cross_entropy.hpp"
#include "modules/objectives/head.hpp"

namespace gyr {

struct Passage {
  std::vector<Token> tokens;
  std::vector<Token> labels;                         // labels[i] is the target after tokens[i]; ignored_label if it is not scored
  std::vector<std::int32_t> positions = {};          // position of each token in its document if several documents are packed; empty: one document
  std::vector<Token> source = {};                    // input of the encoder, at most source_length tokens
  std::vector<Token> neighbours = {};                // layers R: tokens of the neighbours of each chunk (chunks, k, r)
  std::vector<std::int32_t> neighbour_lengths = {};  // and the length of each (chunks, k); 0: it is missing
  NamedHostValues values = {};                       // fields of the model's objective; without values for a field, it has that of padding
};

// Passages by index, made on demand. `lengths` are their lengths in tokens.
struct Passages {
  std::vector<Index> lengths;
  std::function<Passage(Index)> make;
  Index source_length = 0;                                               // maximum length of an encoder input, in tokens; 0: the model has no encoder
  std::function<void(Index, std::span<const RowScore>)> on_scores = {};  // if set, called on every rank with the row scores of each passage
  Index count() const { return Index(lengths.size()); }
};

// Sums over the labelled tokens of one passage.
struct PassageScore {
  double loss = 0;     // sum of -ln p, p: predicted probability of the label
  double squares = 0;  // sum of (ln p)^2
  double tokens = 0;   // number of labelled tokens
  double hits = 0;     // number of labelled tokens that are the most likely ones for the model
};

}  // namespace gyr
