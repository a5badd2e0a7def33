// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Measured GEMM throughput of a rank for large matrices, FLOP/s: the peak that MFU refers to. `best` is that of the
// fastest trial. The median differs from it if other programs take processor time meanwhile.
struct GemmRate {
  double best = 0, median = 0;
};

// Largest value of all ranks; waits for all of them. Ranks of a host thus measure at the same time, as they train.
using Largest = std::function<double(double)>;

// Collective over the ranks of `largest`; a single rank may leave it out.
GemmRate gemm_rate(
    DType, const Largest& largest = [](double x) { return x; });

// Sentence about a median that is more than a tenth below the best; empty otherwise.
std::string uncertainty_of(const GemmRate&);

}  // namespace gyr
