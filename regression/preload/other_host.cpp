// SPDX-License-Identifier: BSD-3-Clause
// LD_PRELOAD library that simulates another machine: the host name is GYR_HOST, and file locks do not reach other
// machines. With GYR_NFS, the file system appears to be NFS.
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
