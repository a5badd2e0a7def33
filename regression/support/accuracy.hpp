// SPDX-License-Identifier: BSD-3-Clause
// Error of fp32 gradients relative to fp64, compared with PyTorch's error. The models are those of
// regression/golden/huggingface, whose folders hold the fp64 results of transformers. huggingface_accuracy.json, next
// to these folders, holds the fp32 errors of transformers.
#pragma once

#include <string>
#include <vector>

#include "regression/support/golden.hpp"

namespace gyr::testing {

// Error of the fp32 gradients of one kind of weight in all layers, e.g. "mamba.A_log": ||g - g64|| / ||g64||, where g64
// is transformers' fp64 gradient. It is a root mean square over several permutations of the hidden channels, because
// the error of a single order depends on chance.
struct Accuracy {
  std::string what;
  double ours, torch;
};
std::vector<Accuracy> accuracies(const Golden&);

// Largest acceptable error: PyTorch's own. Where that is below 3e-6, both errors are pure rounding and vary by chance,
// so 1.7 times PyTorch's error is accepted. (Ratios seen: 0.5 to 1.45, mean 0.97.)
double accuracy_limit(const Accuracy&);

}  // namespace gyr::testing
