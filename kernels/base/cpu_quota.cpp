// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/base/cpu_quota.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

namespace gyr {

namespace {

namespace fs = std::filesystem;

// Text of a file of the kernel, which has no end before it is read; empty if there is no such file.
std::string text_of(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return "";
  std::string text;
  char part[4096];
  for (ssize_t n = 1; n > 0;)
    if (n = ::read(descriptor, part, sizeof part); n > 0) text.append(part, std::size_t(n));
  ::close(descriptor);
  return text;
}

// Limit of one control group; 0 if it sets none ("max", or a quota of -1).
double limit_of(const fs::path& group) {
  double quota = 0, period = 0;
  const std::string both = text_of(group / "cpu.max");
  std::istringstream(both.empty() ? text_of(group / "cpu.cfs_quota_us") + " " + text_of(group / "cpu.cfs_period_us") : both) >> quota >> period;
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

CpuQuota cpu_quota(const fs::path& root) {
  CpuQuota least;
  std::istringstream groups(text_of(root / "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:PATH, without controllers in version 2
    const auto first = line.find(':'), second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == controllers.npos) continue;
    const fs::path mount = root / (unified ? "sys/fs/cgroup" : "sys/fs/cgroup/cpu");
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    for (bool more = true; more; group = group.parent_path()) {
      more = !group.empty();
      const fs::path folder = more ? mount / group : mount;
      if (const double limit = limit_of(folder); limit > 0 && (least.processors == 0 || limit < least.processors)) least = {limit, folder.string()};
    }
  }
  return least;
}

}  // namespace gyr
