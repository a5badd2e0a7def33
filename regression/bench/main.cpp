// SPDX-License-Identifier: BSD-3-Clause
// Runs the benchmarks of kernels: MPI, Kokkos and the benchmark library started once for all of them.
#include <benchmark/benchmark.h>
#include <mpi.h>

#include <Kokkos_Core.hpp>

#include "kernels/gemm.hpp"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  MPI_Init(&argc, &argv);
  Kokkos::initialize(argc, argv);
  gyr::set_blas_threads(1);
  benchmark::RunSpecifiedBenchmarks();
  Kokkos::finalize();
  MPI_Finalize();
}
