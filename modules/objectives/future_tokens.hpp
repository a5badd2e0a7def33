// SPDX-License-Identifier: BSD-3-Clause
// What stands so many tokens further on in a row's text: what multi-token prediction reads and is scored by.
#pragma once

#include <span>

#include "modules/objectives/head.hpp"

namespace gyr {

// Of every row of whole sequences.
struct MtpTargets {
  std::vector<Token> tokens;  // `distance` rows further on; 0 where the text of the row has ended
  std::vector<Token> labels;  // what that row is scored by, or ignored_label
};

// Of sequences of so many tokens one behind the other. positions: of packed documents, none of which sees another; empty: a sequence is one text.
// Labels are those of rows that are there, so that one is missing at the end of every text for each token of the distance.
MtpTargets future_tokens(Index distance, Index seq_length, std::span<const Token> tokens, std::span<const Token> labels,
                         std::span<const std::int32_t> positions);

}  // namespace gyr
