// SPDX-License-Identifier: BSD-3-Clause
// Compiled as everything else is, so that the compiler's own macros tell what that is. Constants alone: none of this runs.
#include "kernels/base/processor.hpp"

namespace gyr {

// A macro that is defined is 1; one that is not stays its name.
#define GYR_TEXT_OF(x) #x
#define GYR_DEFINED(macro) (GYR_TEXT_OF(macro)[0] == '1')
#define GYR_CPU_FEATURE(macro, name, where, bit, saved) GYR_DEFINED(macro),
extern constexpr bool compiled_for[] = {GYR_CPU_FEATURES(GYR_CPU_FEATURE) false};

}  // namespace gyr
