// SPDX-License-Identifier: BSD-3-Clause
// Runs the first steps of a deck on its grid and on one rank, and compares the results.
#pragma once

#include "src/config/run_config.hpp"
#include "src/verify/equality.hpp"

namespace gyr {

// A quantity that is compared, and its largest error. In double and float: "loss", "gradient norm", "loss after the
// update", and the gradients of each kind of weight, such as "mamba.in_proj". In bf16: the gradient norm, and the
// gradient error relative to that of one rank.
struct Law {
  std::string what;
  double error = 0, limit = 0;
  bool holds() const { return error <= limit; }  // also false if the error is NaN
};

// Compares loss and gradients of a step, and the loss after the update. For each kind of weight, the largest error
// counts.
std::vector<Law> laws_of(const StepOutcome& one, const StepOutcome& many, double loss_one, double loss_many, DType);

// Compares a deck in double or float with one rank, or in bf16 with one rank in bf16 and in double. The result is on
// the first rank of the grid, and empty on the others. Collective.
std::vector<Law> compare_with_one_rank(const RunConfig&, DType, Grid&, WaitPolicy);

}  // namespace gyr
