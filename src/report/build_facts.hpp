// SPDX-License-Identifier: BSD-3-Clause
// What this binary was built from.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gyr {

// Git hash, compiler, MPI, Kokkos and its execution space, HDF5, BLAS, backend.
std::vector<std::pair<std::string, std::string>> build_facts();
std::string version();

}  // namespace gyr
