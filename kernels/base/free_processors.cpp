// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/base/free_processors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <map>
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

struct ProcessorTime {
  long long total = 0, idle = 0;
};

// Times of each processor in /proc/stat: user, nice, system, idle, iowait, irq, softirq and steal.
std::map<int, ProcessorTime> times_in(const std::string& stat) {
  constexpr int states = 8;
  std::map<int, ProcessorTime> times;
  std::istringstream lines(stat);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 4 || !line.starts_with("cpu") || line[3] < '0' || line[3] > '9') continue;
    std::istringstream values(line.substr(3));
    int processor = 0;
    values >> processor;
    ProcessorTime& time = times[processor];
    long long value = 0;
    for (int state = 0; state < states && values >> value; ++state) {
      time.total += value;
      if (state == 3 || state == 4) time.idle += value;
    }
  }
  return times;
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

std::vector<int> busy_between(const std::string& before, const std::string& after) {
  const auto first = times_in(before);
  std::vector<int> busy;
  for (const auto& [processor, time] : times_in(after)) {
    const auto earlier = first.find(processor);
    if (earlier == first.end()) continue;
    const long long total = time.total - earlier->second.total, idle = time.idle - earlier->second.idle;
    if (2 * idle < total) busy.push_back(processor);
  }
  return busy;
}

std::vector<int> busy_processors() {
  constexpr timespec window{0, 80'000'000};  // the kernel counts in units of 10 ms
  const std::string before = text_of("/proc/stat");
  ::nanosleep(&window, nullptr);
  return busy_between(before, text_of("/proc/stat"));
}

}  // namespace gyr
