// SPDX-License-Identifier: BSD-3-Clause
// Places at which tests kill a process, as if a node failed.
#pragma once

#include <cstdint>
#include <string_view>

namespace gyr {

// Sends SIGKILL to this process if the environment variable GYR_FAULT_POINT is STAGE:POSITION or STAGE:POSITION:STEP
// with these values.
void fault_point(std::string_view stage, int position, std::int64_t step);

}  // namespace gyr
