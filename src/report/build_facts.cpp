// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/build_facts.hpp"

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <sstream>
#include <string_view>

#include "kernels/device/queue.hpp"
#include "kernels/ops/gemm.hpp"
#include "src/base/input_file.hpp"
#include "src/hdf5/file.hpp"
#include "src/version.hpp"

namespace gyr {

std::string version() { return GYR_VERSION; }
std::string git_hash() { return GYR_GIT_HASH; }

std::string command_line() {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,%@";
  std::istringstream words(text_or_nothing("/proc/self/cmdline", std::size_t(1) << 20));
  std::string line;
  for (std::string word; std::getline(words, word, '\0');) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(plain) == word.npos) line += word;
    else {
      line += '\'';
      for (const char c : word) line += c == '\'' ? "'\\''" : std::string(1, c);
      line += '\'';
    }
  }
  return line.substr(0, 8192);
}

std::vector<std::pair<std::string, std::string>> build_facts() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  std::string mpi_line(mpi);
  std::replace(mpi_line.begin(), mpi_line.end(), '\t', ' ');
  if (const auto end = mpi_line.find('\n'); end != std::string::npos) mpi_line.resize(end);
  return {{"git", git_hash()},
          {"compiler", GYR_COMPILER},
          {"flags", GYR_FLAGS},
          {"MPI", mpi_line},
          {"Kokkos", fmt::format("{}.{}.{}, {}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100, Space::name())},
          {"HDF5", hdf5::library_version()},
          {"BLAS", blas_version()},
          {"backend", backend::name()}};
}

}  // namespace gyr
