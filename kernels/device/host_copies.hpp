// SPDX-License-Identifier: BSD-3-Clause
// Offload to host memory: copies between device and host while the device computes, with one queue per direction. If
// kernels run on the host, a copy is complete when the call returns.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/device/queue.hpp"

namespace gyr {

// Host memory for offload, pinned so that the device copies fastest. With a folder: an unnamed, memory-mapped file
// there, which the system writes to disk when it likes.
class HostMemory {
 public:
  HostMemory() = default;
  // Fails with Exit::device if there is not enough memory, and with Exit::io if the folder or its disk cannot hold the
  // file.
  HostMemory(Index bytes, const std::string& folder);

  char* begin() const { return static_cast<char*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
};

struct HostCopy {
  const void* from;
  void* to;
  Index bytes;
};

// Kernel names under which the copies are recorded and counted.
inline constexpr const char* copy_out = "copy to host";
inline constexpr const char* copy_back = "copy from host";
inline bool is_copy(std::string_view kernel) { return kernel == copy_out || kernel == copy_back; }

// Virtual, so that a test can delay the copies.
class HostCopies {
 public:
  // A ticket names the copies that one call of out() or back() has enqueued.
  using Ticket = int;

  // True if copies run while the device computes.
  static bool overlap();

  explicit HostCopies(const Queue&);
  virtual ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // The copies start when the work enqueued on the device so far and earlier copies of the same direction are done.
  // Their sources must not change until the copies are done.
  virtual Ticket out(std::span<const HostCopy>);
  virtual Ticket back(std::span<const HostCopy>);
  // Work enqueued on the device from now on starts when the copies are done.
  virtual void device_waits(Ticket);

 private:
  struct State;  // streams and events of the copies, defined by the backend
  std::unique_ptr<State> state_;
};

namespace backend {

// Allocates host memory for offload; null if there is not enough.
void* allocate_host_memory(Index bytes);
void free_host_memory(void*);

}  // namespace backend

}  // namespace gyr
