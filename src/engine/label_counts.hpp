// SPDX-License-Identifier: BSD-3-Clause
// How many tokens, or pairs of texts, a step is scored by: what its mean losses are over.
#pragma once

#include "src/engine/chunk.hpp"

namespace gyr {

// Labelled tokens of these micro-batches, or pairs where texts are compared, and those of all replicas, and behind them those of each further loss
// (Objective::further_losses), or of none. Tokens further ahead: read_ahead.hpp.
std::vector<Index> label_counts(const std::vector<MicroBatch>&, const Objective&, bool further, Communicator& replicas);

}  // namespace gyr
