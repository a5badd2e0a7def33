// SPDX-License-Identifier: BSD-3-Clause
// Translates regular expressions from Oniguruma's Ruby syntax, which `tokenizers` uses, to PCRE2 syntax.
#pragma once

#include <string>
#include <string_view>

namespace gyr {

// Returns the PCRE2 pattern that matches the same strings as `pattern`. Only constructs with the same meaning in both,
// or with an exact translation, are supported. Others cause Exit::data with the name of the construct (back references,
// nested sets, \b, named groups, ...).
std::string pcre_of(std::string_view pattern);

// Returns the PCRE2 pattern that matches `text` literally.
std::string quoted_for_pcre(std::string_view text);

}  // namespace gyr
