// SPDX-License-Identifier: BSD-3-Clause
// Versions of the program and of the libraries it was built with.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gyr {

// Git hash, compiler and flags, MPI, Kokkos and its execution space, HDF5, BLAS, backend.
std::vector<std::pair<std::string, std::string>> build_facts();
std::string version();

}  // namespace gyr
