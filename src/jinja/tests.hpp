// SPDX-License-Identifier: BSD-3-Clause
// Tests (`x is NAME`), with the results of Jinja's built-in ones.
#pragma once

#include <functional>
#include <string>

#include "src/jinja/value.hpp"

namespace gyr::jinja {

using Test = std::function<bool(Interpreter&, const Value&, const Arguments&)>;

// The test of this name. Problem if there is none.
const Test& test_named(const std::string& name);
// Message about a name that is no test; empty if it is one.
std::string why_no_test(const std::string& name);

}  // namespace gyr::jinja
