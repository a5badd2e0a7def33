// SPDX-License-Identifier: BSD-3-Clause
// Threads of a rank, used by kernels and GEMM libraries alike; their number is set once for both.
#pragma once

#include <string>

namespace gyr {

// Must be the first call in main. OpenMP reads its wait policy when it is loaded. If the environment sets none
// (OMP_WAIT_POLICY, GOMP_SPINCOUNT), the program executes itself again with passive waiting, which leaves the core to
// other threads and processes. No effect in builds without OpenMP, which kernels or oneDNN use.
void prepare_threads(char** argv);

// Starts the runtime of the kernels and the GEMM libraries with this number of threads; KOKKOS_NUM_THREADS, or else
// OMP_NUM_THREADS, overrides it. Kernels of a build without threads use one thread. `place`: index of this process on
// its machine, which selects its GPU if kernels run on one. Call it once per process, and end_threads once. Exit::usage
// if such a variable has an impossible value; nothing is started then.
void start_threads(int threads, int place = 0);
void end_threads();

// Largest number of threads that compute at the same time in this rank.
int rank_threads();
// Number of threads for work that the host computes itself: rank_threads() if kernels run on the host, else the number
// that start_threads has set.
int host_threads();
// Description of the threads of the kernels, for logs.
std::string threads_text();

}  // namespace gyr
