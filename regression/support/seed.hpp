// SPDX-License-Identifier: BSD-3-Clause
// Seed of random tests: GYR_SEED of the environment, otherwise 1.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace gyr::testing {

// Prints the seed, so that a failure can be reproduced.
inline unsigned seed_of_run() {
  const char* const given = std::getenv("GYR_SEED");
  const unsigned seed = given ? unsigned(std::strtoul(given, nullptr, 10)) : 1;
  std::printf("seed %u\n", seed);
  return seed;
}

}  // namespace gyr::testing
