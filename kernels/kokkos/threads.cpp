// SPDX-License-Identifier: BSD-3-Clause
// Threads of the Kokkos kernels and of the GEMM libraries.
#include "kernels/kokkos/threads.hpp"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/base/given_threads.hpp"
#include "kernels/base/threads.hpp"
#include "kernels/kokkos/onednn.hpp"
#include "kernels/ops/gemm.hpp"

#ifdef KOKKOS_ENABLE_OPENMP
extern "C" void omp_set_num_threads(int);
#endif

namespace gyr {

namespace {

void start_kokkos([[maybe_unused]] int threads) {
#if !defined(KOKKOS_ENABLE_OPENMP) && !defined(KOKKOS_ENABLE_THREADS)
  Kokkos::initialize();
#elif KOKKOS_VERSION >= 30700
  // Kokkos would warn that threads are not bound. Jobscripts and users bind them, because they know the cores of each
  // rank.
  Kokkos::initialize(Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true));
#else
  Kokkos::InitArguments settings;
  settings.num_threads = threads;
  settings.disable_warnings = true;
  Kokkos::initialize(settings);
#endif
}

}  // namespace

void prepare_threads([[maybe_unused]] char** argv) {
#if defined(KOKKOS_ENABLE_OPENMP) || defined(GYR_ONEDNN)
  // A thread that spins between parallel regions takes the core from other threads: those of other ranks, of checkpoint
  // writers and of the system.
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("OMP_WAIT_POLICY", "passive", 0);
  char self[PATH_MAX] = "";
  if (readlink("/proc/self/exe", self, sizeof self - 1) > 0) execv(self, argv);  // if execv fails, the program continues with spinning threads
#endif
}

void use_single_threaded_blas() {
#ifdef KOKKOS_ENABLE_OPENMP
  omp_set_num_threads(1);  // number of threads of parallel regions nested in the current one
#else
  set_onednn_threads(1);
#endif
}

void start_threads(int threads, int) {
  check_thread_variables();
  threads = given_threads("KOKKOS_NUM_THREADS", given_threads("OMP_NUM_THREADS", threads));
  start_kokkos(threads);
  set_blas_threads(threads);
}

void end_threads() { Kokkos::finalize(); }

int host_threads() { return rank_threads(); }
int rank_threads() { return std::max(threaded ? int(Space().concurrency()) : 1, blas_threads()); }

std::string threads_text() {
  if (threaded) return fmt::format("{} in every rank, by Kokkos' {}", rank_threads(), Space::name());
  return fmt::format("1 in every rank, {} for GEMMs", rank_threads());
}

}  // namespace gyr
