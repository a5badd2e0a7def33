// SPDX-License-Identifier: BSD-3-Clause
// A fault that the self-test pretends on one rank, to show that it is found.
#pragma once

#include <string>

namespace gyr::selftest {

enum class FaultKind { none, wrong_memory, wrong_bit, slow_memory, slow_link, dead_link, wrong_link };

struct Fault {
  FaultKind kind = FaultKind::none;
  int rank = 0;
  bool hits(int r, FaultKind k) const { return kind == k && rank == r; }
};

// "KIND:RANK" as in wrong_bit:3; empty: none. Exit::usage for others, or if there is no such rank.
Fault fault_in(const std::string& text, int ranks);
// All kinds, as "wrong_memory, wrong_bit, ...".
std::string fault_kinds();

}  // namespace gyr::selftest
