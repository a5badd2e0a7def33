// SPDX-License-Identifier: BSD-3-Clause
// LD_PRELOAD library for tests with more ranks than cores. MPICH busy-waits inside blocking calls, such as the creation
// of communicators, while the other rank has no core. UCX, on which MPICH waits, is made to yield the core when it is
// idle, and to sleep if that continues. With another communication library there is no effect.
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
