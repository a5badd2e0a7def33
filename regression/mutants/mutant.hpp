// SPDX-License-Identifier: BSD-3-Clause
// Switch of a mutant: true in every process whose environment variable GYRFALCON_MUTANT has the mutant's name. Each
// place reads the variable only once, because some places are in inner loops.
#pragma once

#include <cstdlib>
#include <string_view>

#define GYR_MUTANT(name)                                                              \
  ([] {                                                                               \
    static const bool on = [] {                                                       \
      const char* const chosen = std::getenv("GYRFALCON_MUTANT");                     \
      return chosen != nullptr && std::string_view(chosen) == std::string_view(name); \
    }();                                                                              \
    return on;                                                                        \
  }())
