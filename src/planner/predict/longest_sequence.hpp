// SPDX-License-Identifier: BSD-3-Clause
// Longest sequence that fits in memory for each activation policy. Reported when a run does not fit.
#pragma once

#include "src/config/run_config.hpp"
#include "src/engine/config/activation_choice.hpp"

namespace gyr {

struct MemoryLimits {
  double device = 0, host = 0;  // bytes per rank in device memory and in host memory
};

// Step between the lengths that are tried: an eighth of the deck's sequence length if it is divisible by 8, otherwise
// the sequence length.
Index unit_of_length(const RunConfig&);
// Memory of the largest rank with sequences of `length` tokens. Throws Exit::config if the rules of the deck forbid
// this length.
MemoryLimits taken(RunConfig, int ranks, Index length, const ActivationChoice&);

struct LongestSequence {
  Index tokens = 0;         // 0: no length satisfies the deck's rules and fits in memory
  bool is_longest = false;  // limited by `most`; a dry run of longer sequences takes minutes
};
// Largest multiple of unit_of_length(), at most `most`, for which every rank fits in the given memory limits.
constexpr Index longest_tried = Index(1) << 26;
LongestSequence longest_sequence(const RunConfig&, int ranks, const ActivationChoice&, const MemoryLimits&, Index most = longest_tried);

}  // namespace gyr
