// SPDX-License-Identifier: BSD-3-Clause
// Methods of strings, dicts and lists. Each function returns the bound method, an undefined value for a method that would change the
// object, or nothing if Python's type has no such attribute. Methods that are not supported fail when they are called.
#pragma once

#include <optional>
#include <string>

#include "src/jinja/value.hpp"

namespace gyr::jinja {

std::optional<Value> string_method(const Value& string, const std::string& name);
std::optional<Value> dict_method(const Value& dict, const std::string& name);
std::optional<Value> list_method(const Value& list, const std::string& name);

}  // namespace gyr::jinja
