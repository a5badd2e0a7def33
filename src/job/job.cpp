// SPDX-License-Identifier: BSD-3-Clause
#include "src/job/job.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "src/job/reply.hpp"

namespace gyr {

namespace {

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

// Job ids come from a file that any user may have written, so they must not contain options or patterns.
bool is_id(const std::string& id) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto plain = [&](char c) {
    return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || std::string_view(".-_[]").find(c) != std::string_view::npos;
  };
  return !id.empty() && digit(id[0]) && id.size() < 256 && std::all_of(id.begin(), id.end(), plain);
}

// Value of a field: the word after NAME= in a line of fields, or after NAME = in a line of its own.
std::string value(const std::string& text, const std::string& name) {
  for (const std::string& mark : {name + "=", name + " = "})
    for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1))
      if (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\n') {
        const auto begin = at + mark.size();
        return text.substr(begin, text.find_first_of(" \n", begin) - begin);
      }
  return "";
}

template <std::size_t N>
bool among(const std::string& word, const std::array<std::string_view, N>& list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// States of jobs without running processes: ended, or waiting to be started again.
constexpr std::array<std::string_view, 11> slurm_gone{"PENDING",   "COMPLETED", "CANCELLED", "FAILED",  "TIMEOUT",      "NODE_FAIL",
                                                      "PREEMPTED", "BOOT_FAIL", "DEADLINE",  "REVOKED", "OUT_OF_MEMORY"};
constexpr std::array<std::string_view, 2> slurm_still{"SUSPENDED", "STOPPED"};
constexpr std::array<std::string_view, 7> pbs_gone{"F", "C", "X", "Q", "H", "W", "T"};
constexpr std::array<std::string_view, 2> pbs_still{"S", "U"};

JobState state_in_slurm(const Job& old, double seconds) {
  const auto reply = reply_of({"scontrol", "-o", "show", "job", old.id}, seconds);
  if (!reply) return JobState::unknown;
  if (reply->code != 0) return reply->err.find("Invalid job id") != std::string::npos ? JobState::gone : JobState::unknown;
  std::istringstream lines(reply->out);
  for (std::string line; std::getline(lines, line);) {  // for the first task of a job array, scontrol lists all tasks
    if (value(line, "JobId") != old.id) continue;
    const std::string state = value(line, "JobState");
    if (among(state, slurm_gone) || std::atoi(value(line, "Restarts").c_str()) > old.attempt) return JobState::gone;
    return among(state, slurm_still) ? JobState::suspended : JobState::unknown;
  }
  return JobState::unknown;
}

JobState step_in_slurm(const Job& old, double seconds) {
  const auto reply = reply_of({"scontrol", "-o", "show", "step", old.id + "." + old.step}, seconds);
  if (!reply || reply->code == 0) return JobState::unknown;
  const std::string printed = reply->out + reply->err;
  return printed.find("Invalid job id") != std::string::npos || printed.find(" not found") != std::string::npos ? JobState::gone : JobState::unknown;
}

// Job ids differ between clusters. A login node sets no cluster name, so Slurm's configuration is read instead.
bool on_this_cluster(const Job& old, const Job& mine, double seconds) {
  if (old.cluster.empty()) return false;
  if (!mine.cluster.empty()) return old.cluster == mine.cluster;
  const auto reply = reply_of({"scontrol", "show", "config"}, seconds);
  return reply && reply->code == 0 && value(reply->out, "ClusterName            ") == old.cluster;
}

JobState state_in_pbs(const Job& old, double seconds) {
  const auto reply = reply_of({"qstat", "-f", old.id}, seconds);
  if (!reply) return JobState::unknown;
  for (const char* words : {"Unknown Job", "has finished"})
    if (reply->code != 0 && reply->err.find(words) != std::string::npos) return JobState::gone;
  const std::string state = reply->code == 0 ? value(reply->out, "job_state") : "";
  return among(state, pbs_gone) ? JobState::gone : among(state, pbs_still) ? JobState::suspended : JobState::unknown;
}

}  // namespace

Job job_of_environment() {
  if (const std::string id = environment("SLURM_JOB_ID"); !id.empty())
    return {"slurm", environment("SLURM_CLUSTER_NAME"), id, environment("SLURM_STEP_ID"), std::atoi(environment("SLURM_RESTART_COUNT").c_str())};
  if (const std::string id = environment("PBS_JOBID"); !id.empty()) return {"pbs", "", id, "", 0};
  if (const std::string id = environment("LSB_JOBID"); !id.empty()) {
    const std::string element = environment("LSB_JOBINDEX");
    return {"lsf", "", element.empty() || element == "0" ? id : id + "[" + element + "]", "", 0};
  }
  return {};
}

bool same_job(const Job& a, const Job& b) { return !a.id.empty() && a.scheduler == b.scheduler && a.cluster == b.cluster && a.id == b.id; }

bool earlier_attempt(const Job& old, const Job& mine) { return same_job(old, mine) && old.scheduler == "slurm" && old.attempt < mine.attempt; }

JobState state_of(const Job& old, const Job& mine, double seconds) {
  if (!is_id(old.id)) return JobState::unknown;
  if (earlier_attempt(old, mine)) return JobState::gone;
  if (old.scheduler == "pbs" && !same_job(old, mine)) return state_in_pbs(old, seconds);
  if (old.scheduler != "slurm") return JobState::unknown;
  if (same_job(old, mine)) return is_id(old.step) && old.step != mine.step ? step_in_slurm(old, seconds) : JobState::unknown;
  return on_this_cluster(old, mine, seconds) ? state_in_slurm(old, seconds) : JobState::unknown;
}

}  // namespace gyr
