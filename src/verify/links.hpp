// SPDX-License-Identifier: BSD-3-Clause
// What a machine gives to the communicators of a grid and to its ranks, measured in a moment.
#pragma once

#include "src/parallel/grid.hpp"

namespace gyr {

// An all-reduce on a communicator, on the slowest of those of its name: seconds of one number, and the rate at which a rank sends in a large one.
struct CommunicatorRate {
  std::string name;
  int size;
  double latency, bytes_per_second;
};

// Two ranks of the job that are neighbours on a communicator, and what each sends the other at once.
struct MeasuredLink {
  std::string name;
  int a, b;
  double bytes_per_second;
};

struct MachineRates {
  std::vector<CommunicatorRate> communicators;
  std::vector<MeasuredLink> links;
  std::vector<double> flops_per_second;  // of each rank, in matrix products
};

// Complete on the first rank, empty on the others. Collective.
MachineRates measure(Grid&, DType precision);

// For people; `hosts`: of each rank.
std::string text_of(const MachineRates&, const std::vector<std::string>& hosts);

}  // namespace gyr
