// SPDX-License-Identifier: BSD-3-Clause
// Helpers that depend on the file system: detection of shared file systems, and messages for files that cannot be
// opened.
#pragma once

#include <filesystem>
#include <string>

namespace gyr {

// True if other machines may see this file or folder too, judged by the type of its file system. All types count except
// ext4, XFS, Btrfs, ZFS, F2FS, overlay, SquashFS and file systems in memory. False if the type cannot be read.
bool may_be_shared(const std::filesystem::path&);

// True if the open file is a regular file, not a folder, a pipe or a device.
bool is_regular(int descriptor);

// Reason and remedy for the message about a file that could not be opened with O_NOFOLLOW, which refuses symbolic
// links. `error`: errno.
std::string why_not_opened(int error);

}  // namespace gyr
