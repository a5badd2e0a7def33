// SPDX-License-Identifier: BSD-3-Clause
// Main function of the test programs. It initializes MPI and Kokkos once, and fails if the filter selects no test.
// GYR_TEAM_SIZE sets the number of threads of a team. The program's self-test of wgmma is off by default
// (GYR_CUDA_TRIAL), because the tests check wgmma themselves.
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
