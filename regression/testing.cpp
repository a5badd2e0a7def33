// SPDX-License-Identifier: BSD-3-Clause
// main of every test program: starts MPI and Kokkos once, and fails when the filter selected nothing.
#include "regression/testing.hpp"

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdio>

#include "kernels/gemm.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  Kokkos::initialize(argc, argv);
  gyr::set_blas_threads(1);
  int failed = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "no test matches the filter\n");
    failed = 1;
  }
  Kokkos::finalize();
  MPI_Finalize();
  return failed;
}
