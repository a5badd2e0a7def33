// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

// Prompts of a file: the text under "prompt" of each line of a *.jsonl file, otherwise each line. Empty lines are
// skipped. Exit::missing if there is no file; Exit::data with file:line for an invalid line, or if the file has no
// prompt.
std::vector<std::string> prompts_in(const std::filesystem::path& file);

}  // namespace gyr
