// SPDX-License-Identifier: BSD-3-Clause
// Expert capacity: an expert accepts at most C tokens of a sequence (Lepikhin et al., "GShard", 2020; Fedus et al., "Switch Transformers", 2021),
//   C = max(1, ceil(factor T K / E))
//   T tokens of the sequence, K experts per token (top_k), E experts, factor: moe.capacity_factor
// If more tokens of a sequence choose an expert, the first C are kept, or the C with the largest routing weights. A dropped choice adds nothing to
// its token and takes no part in the GEMMs. Each sequence is counted separately, so that the drops do not depend on its batch or on the
// context-parallel ranks that share it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "modules/model/model_config.hpp"
#include "modules/pass/sequence_layout.hpp"

namespace gyr {

// Capacity C of an expert for a sequence of `tokens` tokens; 0: no limit.
Index expert_capacity(const MoeConfig&, Index tokens);

// Maximum number of this rank's rows that one expert accepts.
Index max_rows_of_expert(const MoeConfig&, const SequenceLayout&);

// True for each choice that is kept: at most `capacity` per expert, by position or by weight. Among weights that are
// equal up to rounding errors, the earlier choice is kept: the last bits of equal rows depend on the position in a GEMM
// and on the layout.
std::vector<bool> kept_choices(DropPolicy, Index experts, Index capacity, std::span<const std::int32_t> chosen /*(T K)*/,
                               std::span<const double> weights /*(T K), only with DropPolicy::probability*/);

// Choices of full sequences and their routing weights, gathered from the context-parallel ranks in rank order: (ranks,
// batch T/ranks, K).
struct SharedChoices {
  std::vector<std::int32_t> chosen;
  std::vector<double> weights;  // routing weights; empty with DropPolicy::position
};
// Expert of each choice of this rank's rows (batch T/ranks K). Dropped choices and padding rows have the value
// `experts`.
std::vector<std::int32_t> experts_within_capacity(const MoeConfig&, const SequenceLayout&, const SharedChoices&);

}  // namespace gyr
