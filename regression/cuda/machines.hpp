// SPDX-License-Identifier: BSD-3-Clause
// Machines for tests of kernels that are emulated.
#pragma once

#include <cstdlib>
#include <vector>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

// The machine is this one until the end of the block.
struct With {
  explicit With(const Machine& wanted) : before(Machine::instance()) { Machine::instance() = wanted; }
  ~With() { Machine::instance() = before; }
  Machine before;
};

// Of every order, some of them checked.
inline const std::vector<Machine> machines_of_every_order = {
    {Order::forward, 1, false}, {Order::backward, 1, true}, {Order::random, 1, true}, {Order::random, 2, false}};

// GYR_SEED, or 1.
inline std::uint64_t seed_of_draws() {
  const char* const given = std::getenv("GYR_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}

}  // namespace gyr::cuda
