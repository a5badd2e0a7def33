// SPDX-License-Identifier: BSD-3-Clause
// Ranks of tests are many and cores few. MPICH spins inside calls that block, as those that make communicators, while the rank it waits for has
// no core. For programs started with LD_PRELOAD: UCX, which MPICH waits with, lets others run whenever it has nothing to do. With another library
// below MPI nothing changes.
#include <dlfcn.h>
#include <sched.h>

extern "C" unsigned ucp_worker_progress(void* worker) {
  static const auto progress = reinterpret_cast<unsigned (*)(void*)>(dlsym(RTLD_NEXT, "ucp_worker_progress"));
  const unsigned done = progress(worker);
  if (done == 0) sched_yield();
  return done;
}
