// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/build_facts.hpp"

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <algorithm>

#include "kernels/device/queue.hpp"
#include "kernels/ops/gemm.hpp"
#include "src/hdf5/file.hpp"
#include "src/version.hpp"

namespace gyr {

std::string version() { return GYR_VERSION; }

std::vector<std::pair<std::string, std::string>> build_facts() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  std::string mpi_line(mpi);
  std::replace(mpi_line.begin(), mpi_line.end(), '\t', ' ');
  if (const auto end = mpi_line.find('\n'); end != std::string::npos) mpi_line.resize(end);
  return {{"git", GYR_GIT_HASH},
          {"compiler", GYR_COMPILER},
          {"flags", GYR_FLAGS},
          {"MPI", mpi_line},
          {"Kokkos", fmt::format("{}.{}.{}, {}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100, Space::name())},
          {"HDF5", hdf5::library_version()},
          {"BLAS", blas_version()},
          {"backend", backend::name()}};
}

}  // namespace gyr
