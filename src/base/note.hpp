// SPDX-License-Identifier: BSD-3-Clause
// Is told what was ignored and why, a sentence at a time.
#pragma once

#include <functional>
#include <string>

namespace gyr {

using Note = std::function<void(const std::string&)>;

}  // namespace gyr
