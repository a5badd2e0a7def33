// SPDX-License-Identifier: BSD-3-Clause
// Names of files as a shell would understand them, for lists that are too long for a command line, or come from a job's variables.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

// Of each word: the file that has this name, or else, where the word has *, ? or [, all that match, in the order of their names. Exit::missing where
// none does.
std::vector<std::filesystem::path> files_named(const std::vector<std::string>& words);

}  // namespace gyr
