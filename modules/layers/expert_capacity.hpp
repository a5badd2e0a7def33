// SPDX-License-Identifier: BSD-3-Clause
// Experts with room for so many tokens of each sequence and no more (Lepikhin et al., "GShard", 2020; Fedus et al., "Switch Transformers", 2021):
//   C = max(1, ceil(factor T K / E)),   of the choices of an expert in a sequence C are kept: the first, or those with the largest weights
// What is not kept adds nothing to its token, and takes no part in the products. Since a sequence is counted by itself, what is dropped does not
// depend on the batch it is in or on the ranks that share it.
//   T tokens of a sequence, K choices of each, E experts
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "modules/model/model_config.hpp"
#include "modules/pass/sequence_layout.hpp"

namespace gyr {

// C; 0: any number.
Index expert_capacity(const MoeConfig&, Index tokens);

// Rows of this rank that may go to one expert.
Index max_rows_of_expert(const MoeConfig&, const SequenceLayout&);

// Of each choice whether it is kept, C of an expert: by place, or by weight, earlier ones first among equals.
std::vector<bool> kept_choices(DropPolicy, Index experts, Index capacity, std::span<const std::int32_t> chosen /*(T K)*/,
                               std::span<const double> weights /*(T K), by weight*/);

// Choices of whole sequences and their weights, of what each of the ranks that share them has, rank by rank as it lies there (ranks, batch T/ranks,
// K).
struct SharedChoices {
  std::vector<std::int32_t> chosen;
  std::vector<double> weights;  // empty by place
};
// The experts that this rank's rows go to (batch T/ranks K): `experts` itself where a choice is dropped, or its row only pads.
std::vector<std::int32_t> experts_within_capacity(const MoeConfig&, const SequenceLayout&, const SharedChoices&);

}  // namespace gyr
