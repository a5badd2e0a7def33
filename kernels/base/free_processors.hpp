// SPDX-License-Identifier: BSD-3-Clause
// Processors that this process can use: limits of control groups, and processors that other processes keep busy.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gyr {

struct CpuQuota {
  double processors = 0;  // CPU seconds per second; 0: no limit
  std::string group;      // folder of the control group that sets the limit
};
// Lowest CPU limit of this process's control groups and their parents (cpu.max of version 2, cpu.cfs_quota_us of
// version 1). `root`: folder that contains proc and sys.
CpuQuota cpu_quota(const std::filesystem::path& root = "/");

// Indices of the processors that were busy for more than half of the time between two states of /proc/stat.
std::vector<int> busy_between(const std::string& before, const std::string& after);
// Indices of the processors that are busy while this process sleeps for some hundredths of a second.
std::vector<int> busy_processors();

}  // namespace gyr
