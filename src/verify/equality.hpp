// SPDX-License-Identifier: BSD-3-Clause
// The law that every layout computes what one rank does: how far a step on a grid is from the same step on one rank, and how far it may be.
// Whoever compares them, `gyrfalcon verify` or a test, does so by this measure and these limits.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/engine/step/engine.hpp"

namespace gyr {

// Whole gradients of the weights that are trained, by name.
using NamedGradients = std::map<std::string, std::vector<double>>;

// What a step gives, of all ranks together.
struct StepOutcome {
  StepResult result;
  NamedGradients gradients;
};

// Differences as parts of what they are differences to; infinite where a number is none, or tokens were counted or weights named otherwise.
struct Errors {
  double loss = 0, norm = 0;
  std::map<std::string, double> gradients;  // by weight: the distance over the length; of one that nearly vanishes, over 0.01 of the norm of all

  double worst_gradient() const;
};

// |many / one - 1|
double relative_error(double one, double many);
Errors errors_of(const StepOutcome& one, const StepOutcome& many);

// In double 1e-12, in float 1e-5. NamedGradients of A_log and dt_bias are few sums of both signs: in float twice that.
double limit_of(DType, std::string_view weight = {});
bool within_limits(const Errors&, DType);

// In bf16 partial sums are rounded to 8 bits before they are added, and what is small beside its parts may be anything. So: how far the norm is from
// that of one rank in bf16; and how far the whole gradient is from that in double, over how far that of one rank is.
struct Rounding {
  double norm = 0, ratio = 0;
};
inline constexpr Rounding limit_in_bf16{0.1, 4};
Rounding rounding_of(const StepOutcome& exact, const StepOutcome& one, const StepOutcome& many);
bool within_limits(const Rounding&);

// Of weights that differ only in the number of their layer or module: "mamba.D" of "model.layers.3.mamba.D", "mtp.enorm" of "mtp.1.enorm".
std::string kind_of(const std::string& weight);

}  // namespace gyr
