// SPDX-License-Identifier: BSD-3-Clause
// The command `data media`.
#pragma once

#include "src/commands/command.hpp"

namespace gyr {

void add_data_media(Command& data, Action&);

}  // namespace gyr
