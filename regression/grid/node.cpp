// SPDX-License-Identifier: BSD-3-Clause
// Ranks are on the same node if their processor names are equal, whatever MPI reports about shared memory.
#include "kernels/comm/mpi/node.hpp"

#include <cstdio>
#include <functional>

#include "regression/support/testing.hpp"

namespace {
std::function<int(int rank)> machine;  // global, because the MPI profiling interface passes no argument
}

extern "C" int MPI_Get_processor_name(char* name, int* length) {
  if (!machine) return PMPI_Get_processor_name(name, length);
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  *length = std::snprintf(name, MPI_MAX_PROCESSOR_NAME, "machine%d", machine(rank));
  return MPI_SUCCESS;
}

namespace gyr::testing::node_suite {
namespace {

TEST(node, ranks_with_equal_processor_name_form_a_node) {
  int ranks = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  using Machine = int (*)(int);
  for (const Machine of : {Machine([](int) { return 7; }), Machine([](int r) { return r / 3; }), Machine([](int r) { return 10 - r % 2; }),
                           Machine([](int r) { return r; })}) {
    machine = of;
    std::vector<int> mine;
    for (int r = 0; r < ranks; ++r)
      if (of(r) == of(rank)) mine.push_back(r);
    MPI_Comm node = node_of(MPI_COMM_WORLD);
    const Crowd crowd = machine_load_of(MPI_COMM_WORLD);
    machine = nullptr;
    int size = 0;
    MPI_Comm_size(node, &size);
    std::vector<int> found(std::size_t(size), -1);
    MPI_Allgather(&rank, 1, MPI_INT, found.data(), 1, MPI_INT, node);
    MPI_Comm_free(&node);
    EXPECT_EQ(found, mine);
    EXPECT_EQ(crowd.ranks, int(mine.size()));
    EXPECT_GE(crowd.cores, 1);
  }
}

TEST(node, ranks_on_this_machine_form_one_node) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  EXPECT_EQ(machine_load_of(MPI_COMM_WORLD).ranks, ranks);
}

}  // namespace
}  // namespace gyr::testing::node_suite
