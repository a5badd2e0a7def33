// SPDX-License-Identifier: BSD-3-Clause
// Quick measurement of a grid's communicators, links and GEMM rates on the present machine.
#pragma once

#include "src/parallel/grid.hpp"

namespace gyr {

// All-reduce on the slowest communicator of a name. latency: seconds for one element. bytes_per_second: rate at which a
// rank sends in a large all-reduce.
struct CommunicatorRate {
  std::string name;
  int size;
  double latency, bytes_per_second;
};

// Two ranks of the job that are neighbours on a communicator, and the rate in each direction while both send.
struct MeasuredLink {
  std::string name;
  int a, b;
  double bytes_per_second;
};

struct MachineRates {
  std::vector<CommunicatorRate> communicators;
  std::vector<MeasuredLink> links;
  std::vector<double> flops_per_second;  // FLOP/s of a GEMM on each rank, by rank
};

// Complete on the first rank, empty on the others. Collective.
MachineRates measure(Grid&, DType precision);

// Text for users; `hosts`: host name of each rank.
std::string text_of(const MachineRates&, const std::vector<std::string>& hosts);

}  // namespace gyr
