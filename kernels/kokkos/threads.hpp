// SPDX-License-Identifier: BSD-3-Clause
// Threads of kernels on the host. If `threaded` is true, these threads also compute the GEMMs, and the BLAS library has
// no threads of its own.
#pragma once

#include "kernels/base/tensor.hpp"

namespace gyr {

#if defined(KOKKOS_ENABLE_OPENMP) || defined(KOKKOS_ENABLE_THREADS)
inline constexpr bool threaded = std::is_same_v<Space, Kokkos::DefaultHostExecutionSpace>;
#else
inline constexpr bool threaded = false;
#endif

// Called by a thread of a parallel region. Until the region ends, its calls of BLAS and oneDNN use only this thread.
void use_single_threaded_blas();
// Number of threads that the BLAS library uses for a call, including the calling thread.
int blas_threads();

}  // namespace gyr
