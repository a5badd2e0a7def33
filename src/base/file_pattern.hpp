// SPDX-License-Identifier: BSD-3-Clause
// Expands file name patterns as a shell does, for lists that are too long for a command line or come from the variables
// of a job.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

// Returns for each word the file of that name, or, if there is none and the word has *, ? or [, all files that match,
// sorted by name. Exit::missing if none matches.
std::vector<std::filesystem::path> files_named(const std::vector<std::string>& words);

}  // namespace gyr
