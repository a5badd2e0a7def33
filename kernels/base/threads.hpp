// SPDX-License-Identifier: BSD-3-Clause
// The threads of a rank, which kernels and matrix products share: how many there are is said once, for both.
#pragma once

#include <string>

namespace gyr {

// The first thing that main does. OpenMP reads how threads wait when it is loaded: where nobody has said it (OMP_WAIT_POLICY, GOMP_SPINCOUNT), the
// program starts itself once more, with waiting that leaves the core to others. Nothing happens in builds whose kernels are without OpenMP.
void prepare_threads(char** argv);

// Starts what kernels run on and the libraries of matrix products, with so many threads; KOKKOS_NUM_THREADS, or else OMP_NUM_THREADS, may say
// otherwise. Kernels of a build without threads run in one. `place`: this process' number on its machine, by which it takes a GPU where kernels run
// on one. Once in a process, and ended once.
void start_threads(int threads, int place = 0);
void end_threads();

// The most that compute at the same time in this rank.
int rank_threads();
// Those that what the host computes itself is shared by: the same where kernels run on the host, else the cores that a rank has.
int host_threads();
// The kernels' in words, for logs.
std::string threads_text();

}  // namespace gyr
