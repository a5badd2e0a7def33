// SPDX-License-Identifier: BSD-3-Clause
// The batch job of a process, and the state of other jobs according to the scheduler (Slurm, PBS).
#pragma once

#include <string>

namespace gyr {

struct Job {
  std::string scheduler;  // slurm, pbs or lsf; empty: no batch job
  std::string cluster;    // Slurm: job ids are unique only within a cluster
  std::string id;         // tasks of a job array have an id each
  std::string step;       // Slurm job step; several steps of a job may run at once
  int attempt = 0;        // Slurm restart count of the job

  bool operator==(const Job&) const = default;
};

// Reads the environment variables of Slurm, PBS and LSF.
Job job_of_environment();

// True for two batch jobs with the same scheduler, cluster and id; ignores steps and attempts.
bool same_job(const Job&, const Job&);
// True if `old` is an earlier attempt of this job; Slurm restarts a job only after all processes of the previous
// attempt have ended.
bool earlier_attempt(const Job& old, const Job& mine);

// Result of state_of().
enum class JobState { gone, suspended, unknown };

// State of job `old` according to its scheduler (scontrol or qstat). gone: it has no process left, according to its
// state, restart count or steps, or the scheduler does not know it. suspended: its processes exist but do not run.
// unknown: in all other cases, for example if it runs, no scheduler is available, the cluster differs, or there was no
// reply within `seconds`.
JobState state_of(const Job& old, const Job& mine, double seconds = 10);

}  // namespace gyr
