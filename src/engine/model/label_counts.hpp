// SPDX-License-Identifier: BSD-3-Clause
// Number of labelled tokens, or of text pairs, in a step: the denominators of its mean losses.
#pragma once

#include "src/engine/model/chunk.hpp"

namespace gyr {

// Labels in these micro-batches, summed over all replicas: labelled tokens, or pairs if the objective compares texts.
// With `further`, the counts of each further loss follow (Objective::further_losses). Labels of multi-token prediction:
// future_tokens.hpp.
std::vector<Index> label_counts(const std::vector<MicroBatch>&, const Objective&, bool further, Communicator& replicas);

// Factors on the loss sums of a step with these label counts: 1 / count makes the sum a mean; a further loss is also
// multiplied by its weight in the total loss.
std::vector<double> loss_scales(const std::vector<Index>& labels, const Objective&);

}  // namespace gyr
