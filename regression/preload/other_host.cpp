// SPDX-License-Identifier: BSD-3-Clause
// Another machine, for a program started with LD_PRELOAD: it is called GYR_HOST, and its file system does not carry locks to others. With
// GYR_NFS it is of a kind that others see too.
#include <dlfcn.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern "C" {

int gethostname(char* name, size_t size) noexcept {
  const char* host = std::getenv("GYR_HOST");
  std::strncpy(name, host ? host : "unnamed", size);
  return 0;
}
int flock(int, int) noexcept { return 0; }
int statfs(const char* path, struct statfs* status) noexcept {
  const int failed = reinterpret_cast<int (*)(const char*, struct statfs*)>(::dlsym(RTLD_NEXT, "statfs"))(path, status);
  if (std::getenv("GYR_NFS")) status->f_type = NFS_SUPER_MAGIC;
  return failed;
}

}  // extern "C"
