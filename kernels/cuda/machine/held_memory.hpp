// SPDX-License-Identifier: BSD-3-Clause
// Registry of the GPU memory that this process holds. Watchers are notified of changes: NCCL communicators register
// this memory, and then transfer it without copies of their own.
#pragma once

#include <map>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr::cuda {

class MemoryWatcher {
 public:
  virtual void taken(void* begin, Index bytes) = 0;
  virtual void given_back(void* begin) = 0;  // called before the memory is freed

 protected:
  ~MemoryWatcher() = default;
};

class DeviceMemoryRegistry {
 public:
  static DeviceMemoryRegistry& of_process();

  void take(void* begin, Index bytes);
  void give_back(void* begin);
  // Notifies the watcher of all memory held now, and of changes from now on until it leaves.
  void watch(MemoryWatcher&);
  void leave(MemoryWatcher&);

 private:
  std::map<void*, Index> pieces_;  // size in bytes by start address
  std::vector<MemoryWatcher*> watchers_;
};

}  // namespace gyr::cuda
