// SPDX-License-Identifier: BSD-3-Clause
// What an evaluation asks of a model: runs of tokens of which some are to be predicted, and what the model makes of them.
#pragma once

#include <functional>
#include <vector>

#include "kernels/ops/cross_entropy.hpp"
#include "modules/objectives/head.hpp"

namespace gyr {

struct Passage {
  std::vector<Token> tokens;
  std::vector<Token> labels;                 // labels[i] follows tokens[i]; ignored_label where it is not asked for
  std::vector<std::int32_t> positions = {};  // of each token in its document, where several are packed; none: one document
  std::vector<Token> source = {};            // that an encoder reads, of source_length tokens at most
  std::vector<Token> types = {};             // of each token, where halves are told apart; none: all have the first
  std::vector<Token> order = {};             // labels of those that tell the order of halves, as labels are; none: none does
};

// Passages by number, made when they are needed; `lengths` are those of their tokens.
struct Passages {
  std::vector<Index> lengths;
  std::function<Passage(Index)> make;
  Index source_length = 0;                                               // of all of them
  std::function<void(Index, std::span<const RowScore>)> on_scores = {};  // if given, shows every rank the scores of the rows of each of them
  Index count() const { return Index(lengths.size()); }
};

// Over the labelled tokens of one passage.
struct PassageScore {
  double loss = 0;     // sum of -ln p
  double squares = 0;  // sum of the squares of the same
  double tokens = 0;   // how many
  double hits = 0;     // how many of them no token is likelier than
};

}  // namespace gyr
