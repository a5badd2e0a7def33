// SPDX-License-Identifier: BSD-3-Clause
// Callback for notes: called with one sentence at a time about something that was ignored, and why.
#pragma once

#include <functional>
#include <string>

namespace gyr {

using Note = std::function<void(const std::string&)>;

}  // namespace gyr
