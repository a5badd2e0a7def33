// SPDX-License-Identifier: BSD-3-Clause
// Makes text from outside (names in files, words of the command line) safe for messages: it cannot move the cursor,
// begin a line or change the writing direction.
#pragma once

#include <string>
#include <string_view>

namespace gyr {

// Replaces control characters, characters that change the writing direction, and bytes that are not UTF-8 by their
// codes, as in \x1b and \u202e. All other text is unchanged, so that a second call changes nothing.
std::string printable(std::string_view text);
// The same for a message of one line. A message may repeat a name or value of any length. Therefore a word of more than
// 160 bytes that is not a path loses its middle, and so does a line of more than 4000 bytes.
std::string printable_line(std::string_view text);
// The same for a message of several lines. Lines after the first are indented, so that none of them looks like a log
// line of its own.
std::string printable_lines(std::string_view text);

}  // namespace gyr
