// SPDX-License-Identifier: BSD-3-Clause
// Machine settings for tests of emulated kernels.
#pragma once

#include <cstdlib>
#include <vector>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

// Sets the machine until the end of the scope.
struct With {
  explicit With(const Machine& wanted) : before(Machine::instance()) { Machine::instance() = wanted; }
  ~With() { Machine::instance() = before; }
  Machine before;
};

// One or two machines for every order; some of them are checked.
inline const std::vector<Machine> machines_of_every_order = {
    {Order::forward, 1, false}, {Order::backward, 1, true}, {Order::random, 1, true}, {Order::random, 2, false}};

// Value of GYR_SEED, or 1.
inline std::uint64_t seed_of_draws() {
  const char* const given = std::getenv("GYR_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}

}  // namespace gyr::cuda
