// SPDX-License-Identifier: BSD-3-Clause
// How many tokens, or pairs of texts, a step is scored by: what its mean losses are over.
#pragma once

#include "src/engine/model/chunk.hpp"

namespace gyr {

// Labelled tokens of these micro-batches, or pairs where texts are compared, and those of all replicas, and behind them those of each further loss
// (Objective::further_losses), or of none. Tokens further ahead: future_tokens.hpp.
std::vector<Index> label_counts(const std::vector<MicroBatch>&, const Objective&, bool further, Communicator& replicas);

// What the losses of rows count with in a step of so many labels: the mean over them, and those of further losses as far as they weigh.
std::vector<double> loss_scales(const std::vector<Index>& labels, const Objective&);

}  // namespace gyr
