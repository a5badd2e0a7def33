// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/comm/mpi/node.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/cpu_quota.hpp"

namespace gyr {

namespace {

// Number of whole processors that a CPU quota leaves of `cores`; 0: no quota.
int within(int cores, double quota) { return quota > 0 ? std::clamp(int(quota), 1, cores) : cores; }

}  // namespace

MPI_Comm node_of(MPI_Comm comm) {
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  int ranks = 0, rank = 0, length = 0;
  MPI_Comm_size(comm, &ranks);
  MPI_Comm_rank(comm, &rank);
  Name mine{};
  MPI_Get_processor_name(mine.data(), &length);
  std::vector<Name> names(ranks);
  MPI_Allgather(mine.data(), int(sizeof mine), MPI_BYTE, names.data(), int(sizeof mine), MPI_BYTE, comm);
  int first = 0;
  while (names[first] != mine) ++first;
  MPI_Comm node;
  MPI_Comm_split(comm, first, rank, &node);
  return node;
}

Crowd machine_load_of(MPI_Comm world, int threads) {
  struct Share {
    int threads;
    cpu_set_t cores;
    double quota;
    std::size_t group;  // hash of the control group that sets the quota
  };
  MPI_Comm node = node_of(world);
  int ranks = 1, place = 0;
  MPI_Comm_size(node, &ranks);
  MPI_Comm_rank(node, &place);
  const CpuQuota quota = cpu_quota();
  Share mine{threads, {}, quota.processors, std::hash<std::string>()(quota.group)};
  sched_getaffinity(0, sizeof mine.cores, &mine.cores);
  std::vector<Share> all(ranks);
  MPI_Allgather(&mine, int(sizeof mine), MPI_BYTE, all.data(), int(sizeof mine), MPI_BYTE, node);
  MPI_Comm_free(&node);
  Crowd crowd{ranks, 0, 0, within(CPU_COUNT(&mine.cores), quota.processors), place};
  cpu_set_t cores;  // union over all ranks, because each may be bound to its own cores
  CPU_ZERO(&cores);
  std::map<std::size_t, double> quotas;  // by control group; ranks of one group share its quota
  bool limited = true;
  for (const Share& s : all) {
    crowd.threads += s.threads, limited &= s.quota > 0, quotas[s.group] = s.quota;
    CPU_OR(&cores, &cores, &s.cores);
  }
  double limit = 0;
  for (const auto& [group, processors] : quotas) limit += processors;
  crowd.cores = within(CPU_COUNT(&cores), limited ? limit : 0);
  return crowd;
}

int Crowd::cores_each() const { return std::max(1, std::min(cores_of_process, cores / ranks)); }

}  // namespace gyr
