// SPDX-License-Identifier: BSD-3-Clause
// Exchanges of the self-test: every rank with every other in pairs, then all ranks together.
#pragma once

#include <mpi.h>

#include <functional>

#include "src/selftest/fault.hpp"
#include "src/selftest/findings.hpp"

namespace gyr::selftest {

struct ExchangeOptions {
  std::size_t bytes = std::size_t(1) << 20;  // per message
  double seconds = 5;                        // time limit of an exchange
  int most_rounds = 32;                      // pairs of more ranks are drawn
  std::uint64_t seed = 1;
};

// Exchanges messages in pairs, round by round. Exit::device if a rank does not reach the end of a round within many time
// limits. `progress` gets the number of finished rounds and of all. Collective.
void exchange_in_pairs(MPI_Comm world, const ExchangeOptions&, const Fault&, Findings&, const std::function<void(int, int)>& progress);
// An all-reduce and an all-to-all of all ranks with known results. Collective.
void exchange_together(MPI_Comm world, Findings&);

}  // namespace gyr::selftest
