// SPDX-License-Identifier: BSD-3-Clause
// Output files of `data build`, and checks that its PREFIX is not an input file.
#pragma once

#include <filesystem>
#include <vector>

namespace gyr {

// Files that a build with this prefix may write.
std::vector<std::filesystem::path> outputs_of(const std::filesystem::path& prefix);

// Exit::usage if `prefix` is one of the inputs or another existing file, so that the user has probably given text files
// only, or if an output file is one of the inputs.
void require_prefix_for(const std::vector<std::filesystem::path>& inputs, const std::filesystem::path& prefix);

}  // namespace gyr
