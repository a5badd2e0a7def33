// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/comm/mpi/node.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <vector>

namespace gyr {

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
  struct NodeMemory {
    int threads;
    cpu_set_t cores;
  };
  MPI_Comm node = node_of(world);
  int ranks = 1, place = 0;
  MPI_Comm_size(node, &ranks);
  MPI_Comm_rank(node, &place);
  NodeMemory mine{threads, {}};
  sched_getaffinity(0, sizeof mine.cores, &mine.cores);
  std::vector<NodeMemory> all(ranks);
  MPI_Allgather(&mine, int(sizeof mine), MPI_BYTE, all.data(), int(sizeof mine), MPI_BYTE, node);
  MPI_Comm_free(&node);
  Crowd crowd{ranks, 0, 0, CPU_COUNT(&mine.cores), place};
  cpu_set_t cores;  // union over all ranks, because each may be bound to its own cores
  CPU_ZERO(&cores);
  for (const NodeMemory& s : all) crowd.threads += s.threads, CPU_OR(&cores, &cores, &s.cores);
  crowd.cores = CPU_COUNT(&cores);
  return crowd;
}

int Crowd::cores_each() const { return std::max(1, std::min(cores_of_process, cores / ranks)); }

}  // namespace gyr
