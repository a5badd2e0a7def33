// SPDX-License-Identifier: BSD-3-Clause
// The seed of what tests draw at random: GYR_SEED, otherwise 1.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace gyr::testing {

// Printed, so that a failure can be repeated.
inline unsigned seed_of_run() {
  const char* const given = std::getenv("GYR_SEED");
  const unsigned seed = given ? unsigned(std::strtoul(given, nullptr, 10)) : 1;
  std::printf("seed %u\n", seed);
  return seed;
}

}  // namespace gyr::testing
