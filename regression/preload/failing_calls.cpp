// SPDX-License-Identifier: BSD-3-Clause
// LD_PRELOAD library that simulates disk failures in a program. It intercepts the calls that write files with
// "/checkpoints" in the path: pwrite, write, fsync, rename, and close of a file that was open for writing. Call number
// GYR_FAILING_CALL fails with the error number GYR_FAILING_ERROR; with error 0, a write returns 0 bytes. The library
// prints the failing call, and at exit the number of calls, on standard error. With GYR_DISK_SPACE, the disk of rank
// GYR_DISK_RANK is full after that number of bytes. With GYR_CALL_LOG, every call appends a line "CALL PATH" (and the
// target of a rename) to that file, in order. With GYR_SYNC_DELAY, fsync takes that number of milliseconds longer.
// With GYR_FREE_BYTES, every file system on disk reports that number of free bytes.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

bool concerned(const char* path) { return std::strstr(path, "/checkpoints") != nullptr; }

// Appends a line to the log in a single write, so that lines of several threads and processes do not mix.
void record(const char* call, const char* path, const char* to = "") {
  static const char* log = std::getenv("GYR_CALL_LOG");
  if (!log || !concerned(path)) return;
  char line[2 * PATH_MAX + 32];
  const int size = std::snprintf(line, sizeof line, "%s %s %s\n", call, path, to);
  const int fd = ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0 || ::syscall(SYS_write, fd, line, size_t(size)) != size) std::abort();
  ::close(fd);
}

bool fails(const char* call, const char* path) {
  if (!concerned(path) || ++calls != number("GYR_FAILING_CALL")) return false;
  std::fprintf(stderr, "failing call: %s of %s\n", call, path);
  errno = int(number("GYR_FAILING_ERROR"));
  return true;
}

struct Path {
  explicit Path(int fd) {
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    text[std::max<ssize_t>(0, ::readlink(link, text, sizeof text - 1))] = 0;
  }
  char text[PATH_MAX];
};

bool fails(const char* call, int fd) {
  const Path path(fd);
  record(call, path.text);
  return fails(call, path.text);
}

// Number of these bytes for which the disk still has space.
size_t bytes_left(int fd, size_t size) {
  static const char *space = std::getenv("GYR_DISK_SPACE"), *of = std::getenv("GYR_DISK_RANK"), *rank = std::getenv("PMI_RANK");
  static std::atomic<long> left{number("GYR_DISK_SPACE")};
  if (!space || !of || !rank || std::strcmp(of, rank) != 0 || !concerned(Path(fd).text)) return size;
  const long before = left.fetch_sub(long(size));
  if (before < long(size)) std::fprintf(stderr, "full disk: rank %s, %s\n", rank, Path(fd).text);
  return size_t(std::clamp(before, 0L, long(size)));
}

// Imitates write(2) on a full disk: writes the bytes that fit, and fails if there is no space at all.
template <class Write>
ssize_t written(const char* call, int fd, size_t size, Write&& write) {
  if (fails(call, fd)) return errno == 0 ? 0 : -1;
  const size_t fits = bytes_left(fd, size);
  if (fits == 0 && size > 0) return errno = ENOSPC, -1;
  return write(fits);
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
  return written("pwrite", fd, size, [&](size_t fits) { return next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, data, fits, at); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  return written("pwrite", fd, size, [&](size_t fits) { return next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64")(fd, data, fits, at); });
}
ssize_t write(int fd, const void* data, size_t size) {
  return written("write", fd, size, [&](size_t fits) { return next<ssize_t(int, const void*, size_t)>("write")(fd, data, fits); });
}
int fsync(int fd) {
  if (fails("fsync", fd)) return -1;
  if (const long delay = number("GYR_SYNC_DELAY")) ::usleep(useconds_t(delay * 1000));
  return next<int(int)>("fsync")(fd);
}
int close(int fd) {
  const auto original = next<int(int)>("close");
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || !fails("close", fd)) return original(fd);
  const int error = errno;
  original(fd);
  return errno = error, -1;
}
int rename(const char* from, const char* to) noexcept {
  record("rename", from, to);
  return fails("rename", from) ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}

int statvfs(const char* path, struct statvfs* status) noexcept {
  const int code = next<int(const char*, struct statvfs*)>("statvfs")(path, status);
  const bool is_memory = std::strncmp(path, "/dev/", 5) == 0;  // MPI needs space in /dev/shm
  if (code == 0 && !is_memory && std::getenv("GYR_FREE_BYTES")) status->f_frsize = 1, status->f_bavail = fsblkcnt_t(number("GYR_FREE_BYTES"));
  return code;
}

}  // extern "C"
