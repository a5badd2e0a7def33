// SPDX-License-Identifier: BSD-3-Clause
// Ranks of tests are many and cores few. MPICH spins inside calls that block, as those that make communicators, while the rank it waits for has
// no core. For programs started with LD_PRELOAD: UCX, which MPICH waits with, lets others run whenever it has nothing to do, and sleeps where
// that goes on, as beside a rank that writes a file. With another library below MPI nothing changes.
#include <dlfcn.h>
#include <sched.h>
#include <time.h>

namespace {
constexpr int tries = 32;
constexpr timespec nap{0, 50'000};
}  // namespace

extern "C" unsigned ucp_worker_progress(void* worker) {
  static const auto progress = reinterpret_cast<unsigned (*)(void*)>(dlsym(RTLD_NEXT, "ucp_worker_progress"));
  static thread_local int idle = 0;
  const unsigned done = progress(worker);
  if (done > 0) idle = 0;
  else if (++idle < tries) sched_yield();
  else nanosleep(&nap, nullptr);
  return done;
}
