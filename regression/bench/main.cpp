// SPDX-License-Identifier: BSD-3-Clause
// Main program of the kernel benchmarks: initializes MPI, Kokkos and the benchmark library once for all of them.
#include <benchmark/benchmark.h>
#include <mpi.h>

#include "kernels/base/threads.hpp"

int main(int argc, char** argv) {
  gyr::prepare_threads(argv);
  benchmark::Initialize(&argc, argv);
  MPI_Init(&argc, &argv);
  gyr::start_threads(1);
  benchmark::RunSpecifiedBenchmarks();
  gyr::end_threads();
  MPI_Finalize();
}
