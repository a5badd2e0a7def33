// SPDX-License-Identifier: BSD-3-Clause
// Inputs and labels of multi-token prediction (MTP): for every row, the token that is `distance` rows later in the same
// document.
#pragma once

#include <span>

#include "modules/pass/named_values.hpp"

namespace gyr {

// Fields of MTP depth `distance`: its input tokens and its labels.
inline ValueName<Token> mtp_tokens(Index distance) { return {fmt::format("tokens of MTP depth {}", distance)}; }
inline ValueName<Token> mtp_labels(Index distance) { return {fmt::format("labels of MTP depth {}", distance)}; }

// One value for every row of unsharded sequences.
struct MtpTargets {
  std::vector<Token> tokens;  // input: token `distance` rows later; 0 after the end of the row's document
  std::vector<Token> labels;  // label of the row `distance` rows later, or ignored_label
};

// tokens, labels: concatenated sequences of seq_length tokens. positions: position of every row in its packed document;
// empty if each sequence is one document. The last `distance` rows of every document have no label.
MtpTargets future_tokens(Index distance, Index seq_length, std::span<const Token> tokens, std::span<const Token> labels,
                         std::span<const std::int32_t> positions);

}  // namespace gyr
