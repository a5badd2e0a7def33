// SPDX-License-Identifier: BSD-3-Clause
// Machines for tests of kernels that are emulated.
#pragma once

#include <cstdlib>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

// The machine is this one until the end of the block.
struct With {
  explicit With(const Machine& wanted) : before(Machine::instance()) { Machine::instance() = wanted; }
  ~With() { Machine::instance() = before; }
  Machine before;
};

// GYR_SEED, or 1.
inline std::uint64_t seed_of_draws() {
  const char* const given = std::getenv("GYR_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}

}  // namespace gyr::cuda
