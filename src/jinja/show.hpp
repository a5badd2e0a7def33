// SPDX-License-Identifier: BSD-3-Clause
// Text of values, as Python's str() and repr() give it.
#pragma once

#include "src/jinja/budget.hpp"
#include "src/jinja/value.hpp"

namespace gyr::jinja {

// Appends str(value). Problem for values whose text contains an address.
void append_shown(const Value& value, Text& out, Budget& budget);
Text shown_text(const Value& value, Budget& budget);  // str(value)
Text repr_of(const Value& value, Budget& budget);     // repr(value)

}  // namespace gyr::jinja
