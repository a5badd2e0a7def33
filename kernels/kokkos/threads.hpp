// SPDX-License-Identifier: BSD-3-Clause
// Whether kernels on hosts run in several threads. Then these do the matrix products as well, and the library of these has no other.
#pragma once

#include "kernels/base/tensor.hpp"

namespace gyr {

#if defined(KOKKOS_ENABLE_OPENMP) || defined(KOKKOS_ENABLE_THREADS)
inline constexpr bool threaded = std::is_same_v<Space, Kokkos::DefaultHostExecutionSpace>;
#else
inline constexpr bool threaded = false;
#endif

// What an environment variable says, a positive number, or else so many.
int given_threads(const char* variable, int otherwise);
// The caller, a thread of a parallel region, will call the libraries of products for itself alone until the region ends.
void use_single_threaded_blas();
// Those that the library of products has beside the ones of kernels; at least the caller's.
int blas_threads();

}  // namespace gyr
