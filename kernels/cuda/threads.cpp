// SPDX-License-Identifier: BSD-3-Clause
// The host has one thread, which tells the device what to do. Kokkos gives views alone.
#include "kernels/threads.hpp"

#include <Kokkos_Core.hpp>

#include "kernels/cuda/runtime.hpp"

namespace gyr {

void prepare_threads(char**) {}
void start_threads(int, int place) {
  Kokkos::initialize();
  cuda::place_on_machine(place);
}
void end_threads() { Kokkos::finalize(); }
int rank_threads() { return 1; }
std::string threads_text() { return "1 in every rank, kernels on " + cuda::device_text(); }

}  // namespace gyr
