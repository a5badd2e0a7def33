// SPDX-License-Identifier: BSD-3-Clause
// The switch of a mistake: on in every process that has the mistake's name in its environment. Asked once at each place, for some places
// are inner loops.
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
