// SPDX-License-Identifier: BSD-3-Clause
// Pages that a browser shows without any network: a form with the head, which has the style, the tools and the numbers in it.
#pragma once

#include <string_view>

#include "src/base/json.hpp"

namespace gyr {

// `form` with head.html in place of @HEAD@, tools.js of @TOOLS@, and the numbers, which tools.js calls so, of @NUMBERS@: each once.
std::string page_of(std::string_view form, const Json& numbers);

}  // namespace gyr
