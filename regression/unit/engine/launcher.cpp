// SPDX-License-Identifier: BSD-3-Clause
// Command lines that start ranks, and the limit on their number without a scheduler or a list of hosts.
#include "src/supervisor/launcher.hpp"

#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::launcher_suite {
namespace {

// Environment variable that has a value, or none, while an object exists.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

const Words program{"gyrfalcon", "train"};
constexpr int absurd = 1'000'000;

TEST(launcher, absurd_number_of_ranks_is_refused) {
  const Variable variables[] = {
      {"SLURM_JOB_ID", nullptr}, {"SLURM_JOBID", nullptr}, {"PBS_JOBID", nullptr}, {"LSB_JOBID", nullptr}, {"HYDRA_HOST_FILE", nullptr}};
  const int most = 64 * int(::sysconf(_SC_NPROCESSORS_ONLN));
  for (const char* name : {"", "mpiexec", "/opt/mpi/bin/mpirun"}) {
    const Error error = error_of([&] { launch_command(name, absurd, program); });
    EXPECT_EQ(error.code, Exit::usage) << name;
    EXPECT_NE(std::string(error.what()).find(std::to_string(most)), std::string::npos) << error.what();
    EXPECT_EQ(error_of([&] { launch_command(name, most + 1, program); }).code, Exit::usage) << name;
    EXPECT_EQ(error_of([&] { launch_command(name, most, program); }).code, Exit::ok) << name;
  }
  for (const char* with_hosts : {"mpiexec -f hosts", "srun", "./start_ranks"})
    EXPECT_EQ(error_of([&] { launch_command(with_hosts, absurd, program); }).code, Exit::ok) << with_hosts;
  for (const auto& [name, value] : {std::pair{"SLURM_JOB_ID", "41"}, {"HYDRA_HOST_FILE", "hosts"}}) {
    const Variable given(name, value);
    EXPECT_EQ(error_of([&] { launch_command("mpiexec", absurd, program); }).code, Exit::ok) << name;
  }
}

}  // namespace
}  // namespace gyr::testing::launcher_suite
