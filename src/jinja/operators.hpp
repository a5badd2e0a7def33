// SPDX-License-Identifier: BSD-3-Clause
// Operators of the template language, with the semantics of Python.
#pragma once

#include <string_view>

#include "src/jinja/budget.hpp"
#include "src/jinja/value.hpp"

namespace gyr::jinja {

// a + b, a - b, a * b, a / b, a // b, a % b, a ** b. Problem for types that do not fit, and for integers above 64 bits.
Value combined(std::string_view symbol, const Value& a, const Value& b, Budget& budget);
Value signed_value(char sign, const Value& value);
// a == b, a != b, a < b, a <= b, a > b, a >= b, a in b, a not in b.
bool compares(std::string_view symbol, const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);
// Size in bytes of a key of a dict, which bounds the work of a look-up. Charges the visit of nested keys.
std::size_t key_size(const Value& key, Budget& budget);
// Items that iteration gives. An iterator is passed over.
std::vector<Value> items_of(const Value& value, Budget& budget);
// value[begin:end:step], where each bound is an integer or none.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget);

}  // namespace gyr::jinja
