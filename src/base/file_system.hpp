// SPDX-License-Identifier: BSD-3-Clause
// What a file system is to its users.
#pragma once

#include <filesystem>
#include <string>

namespace gyr {

// Whether other machines may see this file or folder too, by the kind of its file system: all but those of one machine's disks and memory.
bool may_be_shared(const std::filesystem::path&);

// Why a file that must not be a symbolic link could not be opened (O_NOFOLLOW), in words that say what to do.
std::string why_not_opened(int error);

}  // namespace gyr
