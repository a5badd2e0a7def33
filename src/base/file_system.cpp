// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/file_system.hpp"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "kernels/base/error.hpp"
#include "src/base/quantity.hpp"

namespace gyr {

bool may_be_shared(const std::filesystem::path& path) {
  constexpr long xfs = 0x58465342, zfs = 0x2fc12fc1;  // file system types that magic.h lacks
  constexpr std::array<long, 9> local_types{
      EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, xfs, zfs, SQUASHFS_MAGIC};
  struct statfs status;
  return ::statfs(path.c_str(), &status) == 0 && std::find(local_types.begin(), local_types.end(), long(status.f_type)) == local_types.end();
}

std::optional<double> free_bytes(const std::filesystem::path& folder) {
  struct statvfs status;
  if (::statvfs(folder.c_str(), &status) != 0) return {};
  return double(status.f_bavail) * double(status.f_frsize);
}

void require_space(const std::filesystem::path& folder, std::int64_t bytes, const std::string& what, const std::string& remedy) {
  const auto free = free_bytes(folder);
  if (!free) return;  // a write without space fails later
  require(*free >= double(bytes), Exit::io, "{}: {} needs {}, but only {} is free; {}", folder.string(), what, metric_text(double(bytes), "B"),
          metric_text(*free, "B"), remedy);
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
