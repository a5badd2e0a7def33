// SPDX-License-Identifier: BSD-3-Clause
// CPU features that the compiler may use, from its predefined macros. This file is compiled with the flags of the rest
// of the program. It contains only constants and no code that runs.
#include "kernels/base/processor.hpp"

namespace gyr {

// A macro that is defined expands to 1, an undefined macro to its own name.
#define GYR_TEXT_OF(x) #x
#define GYR_DEFINED(macro) (GYR_TEXT_OF(macro)[0] == '1')
#define GYR_CPU_FEATURE(macro, name, where, bit, saved) GYR_DEFINED(macro),
extern constexpr bool compiled_for[] = {GYR_CPU_FEATURES(GYR_CPU_FEATURE) false};

}  // namespace gyr
