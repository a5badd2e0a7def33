// SPDX-License-Identifier: BSD-3-Clause
// How long the sequences of a run may be with each way to keep activations: the answer to a run that does not fit.
#pragma once

#include "src/config/run_config.hpp"
#include "src/engine/config/activation_choice.hpp"

namespace gyr {

struct MemoryLimits {
  double device = 0, host = 0;  // bytes of a rank
};

// A step of the lengths that are tried: an eighth of the deck's sequences where they have eighths, otherwise as they are.
Index unit_of_length(const RunConfig&);
// What the fullest rank takes with sequences of so many tokens. Exit::config where the deck's rules have no such.
MemoryLimits taken(RunConfig, int ranks, Index length, const ActivationChoice&);

struct LongestSequence {
  Index tokens = 0;         // 0: the deck's rules or its rank have room for none
  bool is_longest = false;  // that is tried: of longer ones a dry run takes minutes
};
// The most tokens of a sequence, a multiple of that, with which every rank has room; no more than `most` are tried.
constexpr Index longest_tried = Index(1) << 26;
LongestSequence longest_sequence(const RunConfig&, int ranks, const ActivationChoice&, const MemoryLimits&, Index most = longest_tried);

}  // namespace gyr
