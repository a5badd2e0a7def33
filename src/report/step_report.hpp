// SPDX-License-Identifier: BSD-3-Clause
// What one optimizer step has to say. Progress line, JSON lines and TensorBoard all show these numbers.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

struct StepReport {
  double time = 0;                // seconds since 1970, when the step ended
  Index step = 0, steps = 0;      // done so far, and wanted
  Index samples = 0, tokens = 0;  // consumed since the training began
  Index global_batch_size = 0;    // samples per step
  double seconds = 0;             // per step
  double tokens_per_second = 0;   // all ranks together
  double tflops = 0;              // 10^12 floating-point operations per second and rank
  std::optional<double> mfu;      // 0..1: tflops as a part of the rank's peak, where the peak is known
  double learning_rate = 0;
  double loss = 0;                                     // mean over tokens, natural logarithm
  std::vector<std::optional<double>> mtp_losses = {};  // of tokens further ahead, by depth, where they are told; nothing: no token is so far ahead
  std::optional<double> order_loss = {};               // of the order of halves, where it is told
  double grad_norm = 0;                                // before clipping
  std::optional<double> params_norm;
  std::optional<double> expert_load;      // tokens of the fullest expert of any layer by an even share, where there are experts
  std::optional<double> dropped_choices;  // 0..1: of all choices of experts those that there was no room for, where room is limited
  Index skipped = 0, nans = 0;            // steps not applied, and those of them with a loss or gradient that was not finite
  Index memory_bytes = 0;                 // most used on any rank
  double seconds_left = 0;                // to the end of the run
};

struct ValidationReport {
  double time = 0;  // seconds since 1970
  Index step = 0;
  Index samples = 0;                                         // training samples consumed so far
  double loss = 0;                                           // mean over tokens, natural logarithm
  std::vector<std::pair<std::string, double>> figures = {};  // how well the model does, by name
  double perplexity() const { return std::exp(loss); }
};

}  // namespace gyr
