// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/file_system.hpp"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace gyr {

bool may_be_shared(const std::filesystem::path& path) {
  constexpr long xfs = 0x58465342, zfs = 0x2fc12fc1;  // file system types that magic.h lacks
  constexpr std::array<long, 9> local_types{
      EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, xfs, zfs, SQUASHFS_MAGIC};
  struct statfs status;
  return ::statfs(path.c_str(), &status) == 0 && std::find(local_types.begin(), local_types.end(), long(status.f_type)) == local_types.end();
}

bool is_regular(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

std::string why_not_opened(int error) {
  if (error == ELOOP) return "it is a symbolic link, and its target is left unchanged; remove the link";
  return std::strerror(error);
}

}  // namespace gyr
