// SPDX-License-Identifier: BSD-3-Clause
// Environment variables that set numbers of threads, and those by which a launcher describes its ranks.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/given_threads.hpp"
#include "kernels/comm/mpi/launched.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::environment_suite {
namespace {

// Variables of this process while the object exists; "" removes a variable.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) {
      const char* const before = std::getenv(name.c_str());
      if (before) before_[name] = before;
      else before_[name] = "";
      set(name, value);
    }
  }
  ~Variables() {
    for (const auto& [name, value] : before_) set(name, value);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  static void set(const std::string& name, const std::string& value) {
    if (value.empty()) ::unsetenv(name.c_str());
    else ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::map<std::string, std::string> before_;
};

TEST(environment, impossible_thread_counts_are_refused) {
  std::mt19937 random(seed_of_run());
  const std::string signs = "0123456789 ,.-+xe";
  for (int draw = 0; draw < 3000; ++draw) {
    std::string text;
    for (unsigned n = random() % 6; n > 0; --n) text += random() % 2 ? char('0' + random() % 10) : signs[random() % signs.size()];
    const Variables set({{"GYR_TEST_THREADS", text}});
    const std::string bare = text.substr(std::min(text.find_first_not_of(' '), text.size())), digits = bare.substr(0, bare.find_first_of(" ,"));
    const bool number = !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
    const int wanted = bare.empty() ? 7 : number ? std::stoi(digits) : 0;
    int found = 0;
    const Error error = error_of([&] { found = given_threads("GYR_TEST_THREADS", 7); });
    if (wanted >= 1 && wanted <= most_threads()) {
      EXPECT_EQ(found, wanted) << "'" << text << "'" << error.what();
    } else {
      EXPECT_EQ(error.code, Exit::usage) << "'" << text << "'";
      EXPECT_NE(std::string(error.what()).find("GYR_TEST_THREADS"), std::string::npos);
    }
  }
}

// This program's own launcher decides: if it has started one process, others around it do not count.
TEST(environment, lone_rank_of_a_foreign_launcher_is_refused) {
  std::mt19937 random(seed_of_run());
#ifdef OPEN_MPI
  const std::string linked_launcher = "OMPI_COMM_WORLD_SIZE";
#else
  const std::string linked_launcher = "PMI_SIZE";
#endif
  const std::string sizes[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"};
  const std::string ranks[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "PMIX_RANK"};
  const std::string values[] = {"", "", "", "0", "1", "2", "64", "x", "-2"};
  int refused = 0;
  for (int draw = 0; draw < 2000; ++draw) {
    std::map<std::string, std::string> drawn{{"SLURM_NTASKS", random() % 2 ? "64" : ""}};
    drawn["SLURM_STEP_ID"] = std::vector<std::string>{"", "0", "17", "4294967290"}[random() % 4];  // the last number is that of salloc's shell
    const bool has_step = drawn["SLURM_STEP_ID"] == "0" || drawn["SLURM_STEP_ID"] == "17";
    bool several = false;
    const auto draw_one = [&](const std::string& name, bool is_size) {
      const std::string& value = drawn[name] = random() % 3 ? "" : values[random() % std::size(values)];
      if (name.starts_with("SLURM_") && !has_step) return;
      several |= value == "2" || value == "64" || (value == "1" && !is_size);
    };
    for (const std::string& name : sizes) draw_one(name, true);
    for (const std::string& name : ranks) draw_one(name, false);
    const Variables set(drawn);
    const Error error = error_of([] { require_own_launcher(1); });
    EXPECT_EQ(error.code, several && drawn[linked_launcher] != "1" ? Exit::device : Exit::ok) << error.what();
    EXPECT_NO_THROW(require_own_launcher(2));
    refused += error.code != Exit::ok;
  }
  EXPECT_GT(refused, 200);
}

// A process of a batch script, or of the shell that salloc opens, is independent of the tasks of its allocation.
TEST(environment, single_process_in_an_allocation_is_accepted) {
  const std::map<std::string, std::string> allocation{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "64"}, {"SLURM_PROCID", "0"}};
  auto batch = allocation, shell = allocation, step = allocation;
  shell.insert({{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "64"}, {"SLURM_STEPID", "4294967290"}});
  step.insert({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "64"}, {"SLURM_STEPID", "0"}});
  for (auto* variables : {&batch, &shell, &step}) {
    for (const char* name : {"PMI_SIZE", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}) variables->insert({name, ""});
    const Variables set(*variables);
    EXPECT_EQ(error_of([] { require_own_launcher(1); }).code, variables == &step ? Exit::device : Exit::ok);
  }
}

}  // namespace
}  // namespace gyr::testing::environment_suite
