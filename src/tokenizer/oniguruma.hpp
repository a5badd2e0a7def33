// SPDX-License-Identifier: BSD-3-Clause
// Regular expressions as Oniguruma reads them (Ruby's syntax, which `tokenizers` uses), put in the words of PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace gyr {

// The PCRE2 pattern that matches what `pattern` matches. Only constructs with the same meaning in both, or with an exact translation,
// pass; others are refused by name (back references, sets inside sets, \b, named groups, ...). Exit::data.
std::string pcre_of(std::string_view pattern);

// The PCRE2 pattern that matches `text` itself.
std::string quoted_for_pcre(std::string_view text);

}  // namespace gyr
