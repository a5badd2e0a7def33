// SPDX-License-Identifier: BSD-3-Clause
// Scheduler queries about the state of a job, with stand-ins for scontrol and qstat that reply as the real ones do
// (Slurm 22.05, OpenPBS 23, Torque 6).
#include "src/job/job.hpp"

#include <chrono>
#include <cstdlib>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/job/reply.hpp"

namespace gyr::testing::job_suite {
namespace {

// Sets only these scheduler variables in the environment, and restores the previous values in its destructor.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "LSB_JOBID", "LSB_JOBINDEX", "PATH"}) {
      const char* before = std::getenv(name);
      before_.emplace_back(name, before ? std::optional<std::string>(before) : std::nullopt);
      if (name != std::string("PATH")) ::unsetenv(name);
    }
    for (const auto& [name, value] : values) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : before_) value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

// Replaces PATH by a folder that holds only these shell scripts. asked() returns the arguments of all calls.
struct Script {
  std::string name, text;
};
class Programs {
 public:
  explicit Programs(const std::vector<Script>& scripts) : environment_({{"PATH", folder_.path().string()}}) {
    for (const auto& [name, text] : scripts) {
      folder_.write(name, "#!/bin/sh\necho \"$@\" >> " + (folder_ / "asked").string() + "\n" + text + "\n");
      std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
    }
  }
  std::string asked() const { return contents(folder_ / "asked"); }

 private:
  Folder folder_;
  Environment environment_;
};

const Job in_slurm{"slurm", "big", "36", "0", 1};
Job slurm(const std::string& id, const std::string& step = "0", int attempt = 0) { return {"slurm", "big", id, step, attempt}; }

TEST(job, is_read_from_the_environment) {
  EXPECT_EQ((Environment({}), job_of_environment()), Job());
  const auto in = [](const std::map<std::string, std::string>& values) {
    const Environment environment(values);
    return job_of_environment();
  };
  EXPECT_EQ(in({{"SLURM_JOB_ID", "36"}, {"SLURM_CLUSTER_NAME", "big"}, {"SLURM_STEP_ID", "0"}, {"SLURM_RESTART_COUNT", "1"}}), in_slurm);
  EXPECT_EQ(in({{"PBS_JOBID", "12[3].server"}}), (Job{"pbs", "", "12[3].server", "", 0}));
  EXPECT_EQ(in({{"LSB_JOBID", "5"}, {"LSB_JOBINDEX", "2"}}), (Job{"lsf", "", "5[2]", "", 0}));
  EXPECT_EQ(in({{"LSB_JOBID", "5"}, {"LSB_JOBINDEX", "0"}}).id, "5");
}

TEST(job, earlier_attempt_requires_same_job_and_cluster) {
  EXPECT_TRUE(earlier_attempt(slurm("36", "0", 0), in_slurm));
  EXPECT_FALSE(earlier_attempt(slurm("36", "0", 1), in_slurm));  // same attempt: another step of the job may be running
  EXPECT_FALSE(earlier_attempt(slurm("36", "0", 2), in_slurm));
  EXPECT_FALSE(earlier_attempt(slurm("37", "0", 0), in_slurm));
  EXPECT_FALSE(earlier_attempt({"slurm", "small", "36", "0", 0}, in_slurm));
  EXPECT_FALSE(earlier_attempt({"pbs", "big", "36", "", 0}, in_slurm));
  EXPECT_FALSE(earlier_attempt({}, {}));
}

TEST(job, slurm_state_and_restarts_show_ended_jobs) {
  const Job old = slurm("40", "0", 1);
  const auto of = [&](const std::string& s, int restarts = 1) {
    const Programs programs(std::vector<Script>{
        {"scontrol", fmt::format("echo 'JobId=40 JobName=x Requeue=1 Restarts={} BatchFlag=1 JobState={} Reason=None'", restarts, s)}});
    const JobState job_state = state_of(old, in_slurm);
    EXPECT_EQ(programs.asked(), "-o show job 40\n");
    return job_state;
  };
  for (const char* gone :
       {"PENDING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"})
    EXPECT_EQ(of(gone), JobState::gone) << gone;
  for (const char* there : {"RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "NONSENSE", ""})
    EXPECT_EQ(of(there), JobState::unknown) << there;
  EXPECT_EQ(of("SUSPENDED"), JobState::suspended);
  EXPECT_EQ(of("RUNNING", 2), JobState::gone);  // the job already runs in a later attempt
}

// For the first element of a job array, scontrol lists all elements. Each element has its own job id.
TEST(job, array_elements_are_separate_jobs) {
  const Programs programs(std::vector<Script>{{"scontrol",
                                               "echo 'JobId=42 ArrayJobId=40 ArrayTaskId=2 JobState=COMPLETED Restarts=0'\n"
                                               "echo 'JobId=40 ArrayJobId=40 ArrayTaskId=3 JobState=RUNNING Restarts=0'\n"}});
  EXPECT_EQ(state_of(slurm("40"), in_slurm), JobState::unknown);
  EXPECT_EQ(state_of(slurm("42"), in_slurm), JobState::gone);
  EXPECT_EQ(state_of(slurm("43"), in_slurm), JobState::unknown);
}

TEST(job, unclear_scheduler_reply_leaves_state_unknown) {
  const Job old = slurm("40");
  const auto with = [&](const std::vector<Script>& scripts, const Job& mine) {
    const Programs programs(scripts);
    return state_of(old, mine, 1);
  };
  EXPECT_EQ(with({}, in_slurm), JobState::unknown);
  EXPECT_EQ(with({{"scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"}}, in_slurm), JobState::gone);
  EXPECT_EQ(with({{"scontrol", "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"}}, in_slurm),
            JobState::unknown);
  EXPECT_EQ(with({{"scontrol", "exit 0"}}, in_slurm), JobState::unknown);
  EXPECT_EQ(with({{"scontrol", "kill -9 $$"}}, in_slurm), JobState::unknown);
  // This process runs on another cluster, or outside of any job.
  const std::string replies =
      "case \"$*\" in *config) echo 'ClusterName             = big';; *) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1;; esac";
  EXPECT_EQ(with({{"scontrol", replies}}, {"slurm", "small", "36", "0", 0}), JobState::unknown);
  EXPECT_EQ(with({{"scontrol", replies}}, {}), JobState::gone);
  EXPECT_EQ(state_of({"slurm", "small", "40", "0", 0}, {}), JobState::unknown);
  for (const char* id : {"", "-h", "40;reboot", "40 41", "*"}) EXPECT_EQ(state_of(slurm(id), in_slurm), JobState::unknown) << id;
}

TEST(job, slurm_reports_other_steps_of_same_job) {
  const auto with = [&](const std::string& script, const Job& old) {
    const Programs programs(std::vector<Script>{{"scontrol", script}});
    return state_of(old, in_slurm, 1);
  };
  EXPECT_EQ(with("echo 'StepId=36.3 State=RUNNING'", slurm("36", "3", 1)), JobState::unknown);
  EXPECT_EQ(with("echo 'slurm_get_job_steps error: Invalid job id specified' >&2; exit 1", slurm("36", "3", 1)), JobState::gone);
  EXPECT_EQ(with("exit 1", slurm("36", "3", 1)), JobState::unknown);
  EXPECT_EQ(with("echo 'Invalid job id specified'; exit 1", slurm("36", "0", 1)), JobState::unknown);  // this process belongs to the queried step
  EXPECT_EQ(with("echo 'Invalid job id specified'; exit 1", slurm("36", "", 1)), JobState::unknown);
  EXPECT_EQ(with("exit 1", slurm("36", "3", 0)), JobState::gone);  // the queried step belongs to the previous attempt
}

TEST(job, pbs_state_shows_ended_jobs) {
  const Job old{"pbs", "", "12[3].server", "", 0}, mine{"pbs", "", "13.server", "", 0};
  const auto with = [&](const std::string& script, const Job& me) {
    const Programs programs(std::vector<Script>{{"qstat", script}});
    return state_of(old, me, 1);
  };
  const auto of = [&](const char* state) {
    return with(fmt::format("printf 'Job Id: 12[3].server\\n    Job_Name = a\\n    job_state = {}\\n    queue = workq\\n'", state), mine);
  };
  for (const char* gone : {"F", "C", "X", "Q", "H", "W", "T"}) EXPECT_EQ(of(gone), JobState::gone) << gone;
  for (const char* there : {"R", "E", "B", "M", ""}) EXPECT_EQ(of(there), JobState::unknown) << there;
  for (const char* still : {"S", "U"}) EXPECT_EQ(of(still), JobState::suspended) << still;
  EXPECT_EQ(with("echo 'qstat: Unknown Job Id 12[3].server' >&2; exit 153", mine), JobState::gone);
  EXPECT_EQ(with("echo 'qstat: 12[3].server Job has finished, use -x or -H to obtain historical job information' >&2; exit 35", mine),
            JobState::gone);
  EXPECT_EQ(with("echo 'qstat: cannot connect to server' >&2; exit 2", mine), JobState::unknown);
  // This process belongs to the queried job, which may be an earlier attempt or another process of it.
  EXPECT_EQ(with("echo 'qstat: Unknown Job Id' >&2; exit 153", old), JobState::unknown);
}

TEST(job, unresponsive_scheduler_command_times_out) {
  const auto begin = std::chrono::steady_clock::now();
  const Programs programs(std::vector<Script>{
      {"scontrol", "/bin/sleep 60 & /bin/sleep 60"}, {"chatter", "while :; do echo words words words; done"}, {"left", "/bin/sleep 60 & echo here"}});
  EXPECT_FALSE(reply_of({"scontrol"}, 0.3));
  EXPECT_FALSE(reply_of({"chatter"}, 0.3));
  EXPECT_FALSE(reply_of({"none"}, 0.3));
  const auto left = reply_of({"left"}, 10);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->out, "here\n");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5);
}

}  // namespace
}  // namespace gyr::testing::job_suite
