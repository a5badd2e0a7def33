// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

// The prompts of a file: of a *.jsonl the text under "prompt" of each line, otherwise each line; empty lines are none. Exit::missing;
// Exit::data with file:line, or where there is no prompt.
std::vector<std::string> prompts_in(const std::filesystem::path& file);

}  // namespace gyr
