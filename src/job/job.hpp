// SPDX-License-Identifier: BSD-3-Clause
// The batch job that a process belongs to, and what its scheduler says of others.
#pragma once

#include <string>

namespace gyr {

struct Job {
  std::string scheduler;  // slurm | pbs | lsf; empty: none
  std::string cluster;    // job ids of Slurm count within one
  std::string id;         // elements of an array have an id each
  std::string step;       // several steps of a job may run at once
  int attempt = 0;        // how often the same job has been started again

  bool operator==(const Job&) const = default;
};

// By the variables that Slurm, PBS and LSF set.
Job job_of_environment();

bool same_job(const Job&, const Job&);  // whatever their steps and attempts
// Slurm starts a job again once all processes of its attempt before are gone.
bool earlier_attempt(const Job& old, const Job& mine);

enum class JobState { gone, suspended, unknown };

// What the scheduler of `old` says of it, asked with scontrol or qstat: gone: none of its processes is left, by its state, its restarts or its
// steps; suspended: they exist and do not run; unknown: it runs, no scheduler can be asked, or there is no answer within `seconds`.
JobState state_of(const Job& old, const Job& mine, double seconds = 10);

}  // namespace gyr
