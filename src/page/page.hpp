// SPDX-License-Identifier: BSD-3-Clause
// Self-contained HTML pages that a browser shows without a network: a template with the common head, scripts and data
// filled in.
#pragma once

#include <string_view>

#include "src/base/json.hpp"

namespace gyr {

// Returns `form` with @HEAD@ replaced by head.html, @TOOLS@ by tools.js, and @NUMBERS@ by the data, which scripts read
// as `data`. Each placeholder occurs once.
std::string page_of(std::string_view form, const Json& data);
// The same, and replaces @BODY@, which is before @TOOLS@ and @NUMBERS@, by HTML that can be read without a script.
std::string page_of(std::string_view form, std::string_view body, const Json& data);

// Values with this number of significant digits, which are enough for a plot. Integers are exact.
Json rounded(const std::vector<double>& values, int digits = 6);

}  // namespace gyr
