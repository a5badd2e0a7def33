// SPDX-License-Identifier: BSD-3-Clause
// Attributes, items and methods of values, as Jinja's sandbox gives them. A method that would change its object is undefined.
#pragma once

#include <string>

#include "src/jinja/budget.hpp"
#include "src/jinja/value.hpp"

namespace gyr::jinja {

// value.name: an attribute or, if there is none, the item of this name. An undefined value if there is neither.
Value attribute_of(const Value& value, const std::string& name, Budget& budget);
// value[key]: an item or, if there is none, the attribute of this name. An undefined value if there is neither.
Value item_of(const Value& value, const Value& key, Budget& budget);
// The item only; empty if there is none.
std::optional<Value> only_item_of(const Value& value, const Value& key, Budget& budget);

}  // namespace gyr::jinja
