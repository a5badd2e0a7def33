// SPDX-License-Identifier: BSD-3-Clause
// Reads JSON as a value of the template language. Objects keep the order of their keys, and each string has the given
// origin.
#pragma once

#include <string_view>

#include "src/jinja/text.hpp"
#include "src/jinja/value.hpp"

namespace gyr::jinja {

// Problem, as a phrase that follows "the line ", for malformed JSON, repeated keys, more than 64 levels, and integers above 64 bits.
Value value_of_json(std::string_view json, Origin origin);

// A copy in which all text has another origin.
Value with_origin(const Value& value, Origin origin);

}  // namespace gyr::jinja
