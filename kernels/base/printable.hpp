// SPDX-License-Identifier: BSD-3-Clause
// Text of others (names in files, words of the command line) as a message may show it: nothing that moves the cursor, begins a line or
// turns the direction of writing.
#pragma once

#include <string>
#include <string_view>

namespace gyr {

// Control characters, those that turn the direction of writing, and bytes that are not UTF-8 by their codes, as in \x1b and \u202e; all
// else stays as it is, so that a second time changes nothing.
std::string printable(std::string_view text);
// The same of a message that may have several lines: those after the first are indented, so that nothing in it is taken for a line of its own.
std::string printable_lines(std::string_view text);

}  // namespace gyr
