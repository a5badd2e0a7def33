// SPDX-License-Identifier: BSD-3-Clause
// Which passages are computed together: like lengths, so that little is padded. Depends on the lengths alone, not on the ranks, so that
// every grid computes the same batches.
#pragma once

#include <span>
#include <vector>

#include "kernels/base/tensor.hpp"

namespace gyr {

struct BatchLimits {
  Index passages = 16;  // in a batch, at most
  Index tokens = 2048;  // in a batch with its padding, at most; a longer passage stands alone
};

struct Batch {
  std::vector<Index> members;  // numbers of passages
  Index seq_length = 0;        // of the longest, to which the others are padded
};

// Every passage once, the longest first; equal lengths in their order.
std::vector<Batch> plan_batches(std::span<const Index> lengths, const BatchLimits&);

}  // namespace gyr
