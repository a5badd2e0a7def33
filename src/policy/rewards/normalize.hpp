// SPDX-License-Identifier: BSD-3-Clause
// Changes of texts that are compared with each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyr {

// The text after the named steps, which are applied in this order, whatever their order in the list: punctuation (removes
// ASCII punctuation and the Unicode categories P), lower (lowercase), spaces (each run of white space becomes one
// space), strip (removes white space at both ends). Invalid UTF-8 becomes U+FFFD.
std::string normalized(std::string_view text, const std::vector<std::string>& steps);

}  // namespace gyr
