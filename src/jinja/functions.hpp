// SPDX-License-Identifier: BSD-3-Clause
// Functions that every template can call: range, dict, namespace, joiner, cycler, raise_exception and strftime_now.
#pragma once

#include <string>

#include "src/jinja/value.hpp"

namespace gyr::jinja {

// An undefined value if there is no function of this name.
Value global_function(const std::string& name);

}  // namespace gyr::jinja
