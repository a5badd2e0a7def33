// SPDX-License-Identifier: BSD-3-Clause
// How far single precision is from double, beside how far PyTorch's is: on the models of regression/golden/huggingface, whose folders hold
// what transformers computes in double, and huggingface_accuracy.json beside them what its single precision is off by.
#pragma once

#include <string>
#include <vector>

#include "regression/support/golden.hpp"

namespace gyr::testing {

// Of the gradients of one kind of weight in all layers ("mamba.A_log"): the distance to transformers' own in double as a part of their
// length, the root of its mean square over some orders of the hidden channels: one order alone is off by chance.
struct Accuracy {
  std::string what;
  double ours, torch;
};
std::vector<Accuracy> accuracies(const Golden&);

// What ours may be: PyTorch's. Where PyTorch's is no more than rounding, below 3e-6, both are chance that orders of the hidden channels
// alone do not draw anew everywhere, and 1.7 times as much will do. (Ratios seen: 0.5 to 1.45, 0.97 in the mean.)
double accuracy_limit(const Accuracy&);

}  // namespace gyr::testing
