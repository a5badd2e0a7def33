// SPDX-License-Identifier: BSD-3-Clause
// Versions of the program and of the libraries it was built with, and its command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gyr {

// Git hash, compiler and flags, MPI, Kokkos and its execution space, HDF5, BLAS, backend.
std::vector<std::pair<std::string, std::string>> build_facts();
std::string version();
std::string git_hash();  // commit that the program was built from
// Command line of this process, quoted for a shell, at most the first 8192 bytes of it; "" if the system does not report it.
std::string command_line();

}  // namespace gyr
