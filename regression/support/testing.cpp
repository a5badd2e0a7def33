// SPDX-License-Identifier: BSD-3-Clause
// main of every test program: starts MPI and Kokkos once, and fails when the filter selected nothing. GYR_TEAM_SIZE: threads of a team. Where there
// are products of warpgroups, tests try them: the program need not (GYR_CUDA_TRIAL).
#include "regression/support/testing.hpp"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/base/threads.hpp"
#include "kernels/device/device.hpp"

int main(int argc, char** argv) {
  gyr::prepare_threads(argv);
  setenv("GYR_CUDA_TRIAL", "off", 0);
  testing::InitGoogleTest(&argc, argv);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  gyr::start_threads(1, rank);
  if (const char* size = std::getenv("GYR_TEAM_SIZE")) gyr::Device::team_size = std::atoi(size);
  if (gyr::Device::team_size > int(gyr::Space().concurrency())) {
    std::printf("SKIPPED: kernels of this build run in one thread\n");
    return 77;
  }
  int failed = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "no test matches the filter\n");
    failed = 1;
  }
  gyr::end_threads();
  MPI_Finalize();
  return failed;
}
