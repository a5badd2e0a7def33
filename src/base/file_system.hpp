// SPDX-License-Identifier: BSD-3-Clause
// Helpers that depend on the file system: detection of shared file systems, free space, and messages for files that
// cannot be opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace gyr {

// True if other machines may see this file or folder too, judged by the type of its file system. All types count except
// ext4, XFS, Btrfs, ZFS, F2FS, overlay, SquashFS and file systems in memory. False if the type cannot be read.
bool may_be_shared(const std::filesystem::path&);

// Bytes that this user may still write to the file system of `folder`; nullopt if it does not report its free space.
std::optional<double> free_bytes(const std::filesystem::path& folder);
// Exit::io with both sizes and the remedy unless the file system of `folder` has `bytes` free. `what`: "a checkpoint"
void require_space(const std::filesystem::path& folder, std::int64_t bytes, const std::string& what, const std::string& remedy);

// True if the open file is a regular file, not a folder, a pipe or a device.
bool is_regular(int descriptor);

// Reason and remedy for the message about a file that could not be opened with O_NOFOLLOW, which refuses symbolic
// links. `error`: errno.
std::string why_not_opened(int error);

}  // namespace gyr
