// SPDX-License-Identifier: BSD-3-Clause
// Limit of the processors that this process may use, set by control groups (containers, batch systems).
#pragma once

#include <filesystem>
#include <string>

namespace gyr {

struct CpuQuota {
  double processors = 0;  // CPU seconds per second; 0: no limit
  std::string group;      // folder of the control group that sets the limit
};
// Lowest CPU limit of this process's control groups and their parents (cpu.max of version 2, cpu.cfs_quota_us of
// version 1). `root`: folder that contains proc and sys.
CpuQuota cpu_quota(const std::filesystem::path& root = "/");

}  // namespace gyr
