// SPDX-License-Identifier: BSD-3-Clause
// The first steps of a deck on its grid and on one rank, and what of them differs.
#pragma once

#include "src/config/run_config.hpp"
#include "src/verify/equality.hpp"

namespace gyr {

// What is compared, and by how much it differs at worst: "loss", "gradient norm", "loss behind the update", and the gradients of each kind of weight,
// as "mamba.in_proj".
struct Law {
  std::string what;
  double error = 0, limit = 0;
  bool holds() const { return error <= limit; }  // and is a number
};

// Loss and gradients, then an update and the loss behind it. Of errors of weights the one that is worst beside its limit stands for its kind.
std::vector<Law> laws_of(const StepOutcome& one, const StepOutcome& many, double loss_one, double loss_many, DType);

// The laws of a deck in double or float, or in bf16, where one rank's is compared with double too. On the first rank of the grid; nothing on the
// others. Collective.
std::vector<Law> compare_with_one_rank(const RunConfig&, DType, Grid&, WaitPolicy);

}  // namespace gyr
