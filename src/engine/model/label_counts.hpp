// SPDX-License-Identifier: BSD-3-Clause
// Number of labelled tokens, or of text pairs, in a step: the denominators of its mean losses.
#pragma once

#include "src/engine/model/chunk.hpp"

namespace gyr {

// Labels of the objective's first loss in these micro-batches, summed over all replicas. With `further`, those of each
// further loss follow (Objective::losses).
std::vector<Index> label_counts(const std::vector<MicroBatch>&, const Objective&, bool further, Communicator& replicas);

// Factors on the loss sums of a step with these label counts (Objective::scale).
std::vector<double> loss_scales(const std::vector<Index>& labels, const Objective&);

}  // namespace gyr
