// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/host_copies.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// Allocates the file's disk space before it is used, so that a full disk is reported at the start.
std::shared_ptr<void> mapped_file(Index bytes, const std::string& folder) {
  std::string path = folder + "/swapped.XXXXXX";
  const int file = mkstemp(path.data());
  require(file >= 0, Exit::io, "{}: cannot create a file there for offloaded activations ({}); set activation.swap_folder to another folder", folder,
          std::strerror(errno));
  unlink(path.c_str());
  int error = posix_fallocate(file, 0, off_t(bytes));
  void* const memory = error == 0 ? mmap(nullptr, std::size_t(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (error == 0) error = errno;
  close(file);
  require(memory != MAP_FAILED, Exit::io, "{}: has no room for {} bytes of offloaded activations ({}); set activation.swap_folder to another folder",
          folder, bytes, std::strerror(error));
  return {memory, [bytes](void* m) { munmap(m, std::size_t(bytes)); }};
}

}  // namespace

HostMemory::HostMemory(Index bytes, const std::string& folder) {
  if (bytes == 0) return;
  if (!folder.empty()) {
    memory_ = mapped_file(bytes, folder);
    return;
  }
  void* const memory = backend::allocate_host_memory(bytes);
  require(memory != nullptr, Exit::device,
          "cannot allocate {} bytes of host memory for offloaded activations; lower activation.alpha (with activation.policy = memo)", bytes);
  memory_ = {memory, backend::free_host_memory};
}

}  // namespace gyr
