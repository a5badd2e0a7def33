// SPDX-License-Identifier: BSD-3-Clause
// Text from format strings.
#pragma once

#include "src/jinja/budget.hpp"
#include "src/jinja/value.hpp"

namespace gyr::jinja {

// format % values, for the conversions s, r, d, i, u, x, X, o, f and F with flags, width and precision. `values` is a
// tuple, a dict for %(name)s, or a single value.
Text printf_text(const Text& format, const Value& values, Budget& budget);
// format.format(...), for fields {}, {0} and {name}, also with !s and !r.
Text formatted_text(const Text& format, const Arguments& arguments, Budget& budget);

}  // namespace gyr::jinja
