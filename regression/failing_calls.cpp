// SPDX-License-Identifier: BSD-3-Clause
// A disk that fails once, for a program started with LD_PRELOAD: of the calls that bring a checkpoint to disk (pwrite, write, fsync, rename
// of what has "/checkpoints" in its path) number GYR_FAILING_CALL of all fails with the error number GYR_FAILING_ERROR. It says so on
// standard error, and how many calls there were at the end.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<long> calls{0};

long number(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atol(text) : 0;
}

bool fails(const char* call, const char* path) {
  if (std::strstr(path, "/checkpoints") == nullptr || ++calls != number("GYR_FAILING_CALL")) return false;
  std::fprintf(stderr, "failing call: %s of %s\n", call, path);
  errno = int(number("GYR_FAILING_ERROR"));
  return true;
}

bool fails(const char* call, int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = 0;
  return fails(call, path);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

const struct AtEnd {
  ~AtEnd() { std::fprintf(stderr, "calls that could fail: %ld\n", calls.load()); }
} at_end;

}  // namespace

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  return fails("pwrite", fd) ? -1 : next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  return fails("pwrite", fd) ? -1 : next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64")(fd, data, size, at);
}
ssize_t write(int fd, const void* data, size_t size) {
  return fails("write", fd) ? -1 : next<ssize_t(int, const void*, size_t)>("write")(fd, data, size);
}
int fsync(int fd) { return fails("fsync", fd) ? -1 : next<int(int)>("fsync")(fd); }
int rename(const char* from, const char* to) noexcept { return fails("rename", from) ? -1 : next<int(const char*, const char*)>("rename")(from, to); }

}  // extern "C"
