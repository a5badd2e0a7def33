// SPDX-License-Identifier: BSD-3-Clause
// Threads of a rank in the CUDA backend. One host thread launches the kernels. More host threads are used only for work
// that the host computes itself. Kokkos provides the views only.
#include "kernels/base/threads.hpp"

#include <Kokkos_Core.hpp>

#include "kernels/base/given_threads.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr {

void prepare_threads(char**) {}
namespace {

int& threads_of_host() {
  static int threads = 1;
  return threads;
}

}  // namespace

void start_threads(int threads, int place) {
  check_thread_variables();
  threads_of_host() = given_threads("OMP_NUM_THREADS", threads);
  Kokkos::initialize();
  cuda::place_on_machine(place);
}
void end_threads() { Kokkos::finalize(); }
int rank_threads() { return 1; }
int host_threads() { return threads_of_host(); }
std::string threads_text() { return "1 in each rank, kernels on " + cuda::device_text(); }

}  // namespace gyr
