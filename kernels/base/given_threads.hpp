// SPDX-License-Identifier: BSD-3-Clause
// Thread counts in environment variables, such as OMP_NUM_THREADS.
#pragma once

namespace gyr {

// Thread count in an environment variable, or `otherwise` if the variable is absent or empty. If the variable is a list,
// one entry per level of nested parallel regions, the first entry is returned. Exit::usage unless it is an integer from
// 1 to most_threads().
int given_threads(const char* variable, int otherwise);

// Exit::usage if a variable that OpenMP, the BLAS library or Kokkos reads has an impossible value. Kokkos itself aborts
// if one of its variables is not an integer.
void check_thread_variables();

// Largest number of threads per process: the cores of the machine, but at least 1024. Libraries overflow their stacks
// with some ten thousand threads.
int most_threads();

}  // namespace gyr
