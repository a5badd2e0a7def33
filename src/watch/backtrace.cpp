// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/backtrace.hpp"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace gyr {

namespace {

std::atomic<int> output{-1};  // global, because the signal handler has no argument

void write_frames(int) {
  void* frames[64];
  const int fd = output.load();
  if (fd >= 0) backtrace_symbols_fd(frames, ::backtrace(frames, 64), fd);
  output.store(-1);
}

}  // namespace

void write_backtrace(pthread_t thread, const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return;
  void* first[1];
  ::backtrace(first, 1);  // loads libgcc now, which must not happen in the handler
  struct sigaction action {};
  action.sa_handler = write_frames;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGRTMIN, &action, nullptr);
  output.store(fd);
  ::pthread_kill(thread, SIGRTMIN);
  const timespec pause{0, 10'000'000};
  for (int i = 0; i < 100 && output.load() >= 0; ++i) nanosleep(&pause, nullptr);
  output.store(-1);
  ::close(fd);
}

}  // namespace gyr
