// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace gyr {

// Width of output in columns: COLUMNS if it is set, the width of the terminal, or `of_files` for files and pipes.
int output_width(std::FILE* out, int of_files = 100);

// Number of characters that a terminal shows; UTF-8 continuation bytes do not count.
std::size_t shown_width(const std::string& text);
// Breaks text into lines at spaces; a word wider than `width` is split.
std::vector<std::string> broken_lines(const std::string& text, std::size_t width);
// The text with each line broken at spaces to `width`. The further lines of a table entry, "  NAME  text", are indented
// like its text, those of any other line like the line.
std::string with_hanging_lines(const std::string& text, std::size_t width);
// Sentences for standard output, each line broken at spaces to the width of the terminal or COLUMNS. Lines for files and
// pipes are not broken, so that programs can search them.
std::string prose(const std::string& text);
// The word as a shell reads it: in quotes if the shell would change it.
std::string shell_word(const std::string& word);

}  // namespace gyr
