// SPDX-License-Identifier: BSD-3-Clause
// The host's memory beside the device's, and copies between the two while the device computes: one queue out and one back. Where kernels run on the
// host a copy is done when it is told.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/device/queue.hpp"

namespace gyr {

// Memory that the device's copies reach quickest; with a folder, a file there that has no name and that the system writes when it likes.
class HostMemory {
 public:
  HostMemory() = default;
  // Exit::device where there is not so much, Exit::io where the folder's disk has no room.
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

// As what a device is told of them, and counts.
inline constexpr const char* copy_out = "copy to host";
inline constexpr const char* copy_back = "copy from host";
inline bool is_copy(std::string_view kernel) { return kernel == copy_out || kernel == copy_back; }

class HostCopies {
 public:
  // Of the copies told together.
  using Ticket = int;

  // Whether copies are made while the device computes.
  static bool beside();

  explicit HostCopies(const Queue&);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // They begin when the device has done what it was told so far, and behind those that were told before; what they read must stay as it is.
  Ticket out(std::span<const HostCopy>);
  Ticket back(std::span<const HostCopy>);
  // What the device is told from now on begins when they are done.
  void device_waits(Ticket);

 private:
  struct State;  // of a backend
  std::unique_ptr<State> state_;
};

namespace backend {

// Null where there is not so much.
void* allocate_host_memory(Index bytes);
void free_host_memory(void*);

}  // namespace backend

}  // namespace gyr
