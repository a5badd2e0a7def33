// SPDX-License-Identifier: BSD-3-Clause
// Parses templates with the grammar of Jinja 3.1. Statements that load other templates, unknown filters and unknown tests are refused by
// name.
#pragma once

#include <string_view>

#include "src/jinja/lexer.hpp"
#include "src/jinja/syntax.hpp"

namespace gyr::jinja {

// `source` is valid UTF-8. Throws SyntaxProblem.
Syntax parse(std::string_view source);

}  // namespace gyr::jinja
