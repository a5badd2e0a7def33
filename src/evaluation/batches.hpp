// SPDX-License-Identifier: BSD-3-Clause
// Batches of passages. Passages of similar length are batched together, so that little is padded. Batches depend only
// on the lengths, not on the ranks, so every grid computes the same batches.
#pragma once

#include <span>
#include <vector>

#include "kernels/base/tensor.hpp"

namespace gyr {

struct BatchLimits {
  Index passages = 16;  // maximum number of passages in a batch
  Index tokens = 2048;  // maximum number of tokens in a batch, padding included; a longer passage is a batch of its own
};

struct Batch {
  std::vector<Index> members;  // indices of the passages in this batch
  Index seq_length = 0;        // length of the longest member, to which the others are padded
};

// Each passage once, longest first; passages of equal length keep their order.
std::vector<Batch> plan_batches(std::span<const Index> lengths, const BatchLimits&);

}  // namespace gyr
