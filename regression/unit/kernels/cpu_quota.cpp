// SPDX-License-Identifier: BSD-3-Clause
// CPU limits of control groups, read from folders like those of Linux, and the warning of too many threads.
#include "kernels/base/cpu_quota.hpp"

#include <fstream>

#include "kernels/comm/mpi/node.hpp"
#include "regression/support/testing.hpp"
#include "src/commands/runtime.hpp"

namespace gyr::testing::cpu_quota_suite {

namespace fs = std::filesystem;

namespace {

// A root folder with these files.
class Root {
 public:
  explicit Root(const std::vector<std::pair<std::string, std::string>>& files) {
    for (const auto& [name, text] : files) {
      fs::create_directories((path_ / name).parent_path());
      std::ofstream(path_ / name) << text;
    }
  }
  ~Root() { fs::remove_all(path_); }
  double limit() const { return cpu_quota(path_).processors; }

 private:
  fs::path path_ = fs::temp_directory_path() / fmt::format("cpu_quota_{}", ::getpid());
};

}  // namespace

TEST(cpu_quota, lowest_cpu_limit_of_parents_counts) {
  const std::pair<std::string, std::string> own{"proc/self/cgroup", "0::/a/b\n"};
  EXPECT_EQ(Root({own}).limit(), 0);
  EXPECT_EQ(Root({own, {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}}).limit(), 0);
  EXPECT_EQ(Root({own, {"sys/fs/cgroup/a/b/cpu.max", "250000 100000\n"}}).limit(), 2.5);
  EXPECT_EQ(Root({own, {"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "150000 50000\n"}}).limit(), 3);
  EXPECT_EQ(Root({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "100000 100000\n"}}).limit(), 1);
}

TEST(cpu_quota, cpu_limit_of_cgroup_version_1_counts) {
  const std::pair<std::string, std::string> own{"proc/self/cgroup", "4:memory:/m\n2:cpu,cpuacct:/x\n1:cpuset:/\n"};
  const auto file = [](const char* name, const char* text) {
    return std::pair<std::string, std::string>{std::string("sys/fs/cgroup/cpu/") + name, text};
  };
  EXPECT_EQ(Root({own, file("x/cpu.cfs_quota_us", "-1\n"), file("x/cpu.cfs_period_us", "100000\n")}).limit(), 0);
  EXPECT_EQ(Root({own, file("x/cpu.cfs_quota_us", "200000\n"), file("x/cpu.cfs_period_us", "100000\n")}).limit(), 2);
  EXPECT_EQ(Root({own, file("cpu.cfs_quota_us", "50000\n"), file("cpu.cfs_period_us", "100000\n")}).limit(), 0.5);  // in a container
}

TEST(cpu_quota, thread_advice_names_both_numbers_and_remedy) {
  const auto advice = [](int ranks, int threads, int cores) { return thread_advice(Crowd{ranks, 0, cores, cores, 0}, threads); };
  EXPECT_EQ(advice(2, 1, 2), "");
  EXPECT_EQ(advice(1, 2, 2), "");
  EXPECT_EQ(advice(2, 4, 6), "warning: 2 ranks x 4 threads run on 6 processors of this machine and slow each other down; set OMP_NUM_THREADS=3\n");
  EXPECT_EQ(advice(4, 1, 2),
            "warning: 4 ranks x 1 thread run on 2 processors of this machine and slow each other down; start at most 2 ranks here\n");
  EXPECT_EQ(
      advice(4, 2, 1),
      "warning: 4 ranks x 2 threads run on 1 processor of this machine and slow each other down; set OMP_NUM_THREADS=1, or start at most 1 rank "
      "here\n");
}

}  // namespace gyr::testing::cpu_quota_suite
