// SPDX-License-Identifier: BSD-3-Clause
// Equality of layouts: every layout must compute what one rank computes. Defines the error of a step on a grid relative
// to the same step on one rank, and its limits. `gyrfalcon verify` and the tests use this measure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/engine/step/engine.hpp"

namespace gyr {

// Full (unsharded) gradients of the trained weights, by name.
using NamedGradients = std::map<std::string, std::vector<double>>;

// Result of a step, combined over all ranks.
struct StepOutcome {
  StepResult result;
  NamedGradients gradients;
};

// Relative errors. `loss` is the largest error of the loss and the multi-token prediction (MTP) losses, `norm` that of
// the gradient norm. Infinite if a value is NaN, or if token counts, dropped expert choices, weight names or weight
// sizes differ.
struct Errors {
  double loss = 0, norm = 0;
  std::map<std::string, double> gradients;  // by weight: |a - b| / (|a| + 0.01 x norm of all gradients), Euclidean norms

  double worst_gradient() const;
};

// Relative error |many / one - 1|.
double relative_error(double one, double many);
Errors errors_of(const StepOutcome& one, const StepOutcome& many);

// Limit of the relative error: 1e-12 in double, 1e-5 in float. Gradients of A_log and dt_bias are sums in which terms
// cancel, so in float their limit is 2e-5.
double limit_of(DType, std::string_view weight = {});
bool within_limits(const Errors&, DType);

// Errors in bf16, where partial sums are rounded to 8 bits and small elements may differ arbitrarily. norm: relative
// error of the gradient norm against one rank in bf16. ratio: distance of the gradient to one rank's gradient in
// double, divided by the same distance for one rank in bf16.
struct Rounding {
  double norm = 0, ratio = 0;
};
inline constexpr Rounding limit_in_bf16{0.1, 4};
Rounding rounding_of(const StepOutcome& exact, const StepOutcome& one, const StepOutcome& many);
bool within_limits(const Rounding&);

// Weight name without the index of its layer or MTP module: "mamba.D" for "model.layers.3.mamba.D", "mtp.enorm" for
// "mtp.1.enorm".
std::string kind_of(const std::string& weight);

}  // namespace gyr
