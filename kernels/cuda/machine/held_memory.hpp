// SPDX-License-Identifier: BSD-3-Clause
// The memory that this process holds of its GPU, and who is told of it: communicators, which move what they know without copies of their own.
#pragma once

#include <map>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr::cuda {

class MemoryWatcher {
 public:
  virtual void taken(void* begin, Index bytes) = 0;
  virtual void given_back(void* begin) = 0;  // before it is

 protected:
  ~MemoryWatcher() = default;
};

class DeviceMemoryRegistry {
 public:
  static DeviceMemoryRegistry& of_process();

  void take(void* begin, Index bytes);
  void give_back(void* begin);
  // From now on, and at once of what is held already; until it leaves.
  void watch(MemoryWatcher&);
  void leave(MemoryWatcher&);

 private:
  std::map<void*, Index> pieces_;  // bytes by their begin
  std::vector<MemoryWatcher*> watchers_;
};

}  // namespace gyr::cuda
