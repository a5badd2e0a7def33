// SPDX-License-Identifier: BSD-3-Clause
// Places where tests let a process die, as when a node fails.
#pragma once

#include <cstdint>
#include <string_view>

namespace gyr {

// SIGKILL to this process where the environment says GYR_FAULT_POINT=STAGE:POSITION or STAGE:POSITION:STEP with these values.
void fault_point(std::string_view stage, int position, std::int64_t step);

}  // namespace gyr
