// SPDX-License-Identifier: BSD-3-Clause
// Metrics of one optimizer step, for the progress line, JSON lines and TensorBoard.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

struct StepReport {
  double time = 0;                // end of the step, seconds since 1970
  Index step = 0, steps = 0;      // steps done so far, and total of the run
  Index samples = 0, tokens = 0;  // samples and tokens consumed since the start of the training
  Index global_batch_size = 0;    // global batch size, samples per step
  double seconds = 0;             // duration of a step in seconds
  double tokens_per_second = 0;   // throughput of all ranks together
  double tflops = 0;              // 10^12 floating-point operations per second and rank
  std::optional<double> mfu;      // 0..1: tflops divided by the peak of a rank, empty if the peak is not known
  double learning_rate = 0;
  double loss = 0;  // mean training loss over tokens, natural logarithm
  // multi-token prediction (MTP) losses by depth, if reported; nullopt: no token has a target at this depth
  std::vector<std::optional<double>> mtp_losses = {};
  std::optional<double> order_loss = {};                     // loss of sentence-order prediction, if reported
  std::vector<std::pair<std::string, double>> figures = {};  // policy training: metrics of the loss by name
  double grad_norm = 0;                                      // gradient norm before clipping
  std::optional<double> params_norm;
  std::optional<double> expert_load;      // for models with experts: maximum expert load of any layer, in tokens relative to an even distribution
  std::optional<double> dropped_choices;  // if capacity is limited: fraction 0..1 of the expert choices that exceeded it
  Index skipped = 0, nans = 0;            // number of steps whose update was not applied; number of those with a non-finite loss or gradient
  Index memory_bytes = 0;                 // memory in use, maximum over all ranks
  double seconds_left = 0;                // estimated seconds until the end of the run
};

struct ValidationReport {
  double time = 0;  // time of the validation, seconds since 1970
  Index step = 0;
  Index samples = 0;                                         // training samples consumed so far
  double loss = 0;                                           // mean validation loss over tokens, natural logarithm
  std::vector<std::pair<std::string, double>> figures = {};  // metrics of model quality by name, such as accuracy
  double perplexity() const { return std::exp(loss); }
};

}  // namespace gyr
