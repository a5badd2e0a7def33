// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/machine/held_memory.hpp"

namespace gyr::cuda {

DeviceMemoryRegistry& DeviceMemoryRegistry::of_process() {
  static DeviceMemoryRegistry& memory = *new DeviceMemoryRegistry;  // never destroyed, because memory may be returned until the process ends
  return memory;
}

void DeviceMemoryRegistry::take(void* begin, Index bytes) {
  pieces_[begin] = bytes;
  for (MemoryWatcher* const watcher : watchers_) watcher->taken(begin, bytes);
}

void DeviceMemoryRegistry::give_back(void* begin) {
  if (pieces_.erase(begin) == 0) return;
  for (MemoryWatcher* const watcher : watchers_) watcher->given_back(begin);
}

void DeviceMemoryRegistry::watch(MemoryWatcher& watcher) {
  for (const auto& [begin, bytes] : pieces_) watcher.taken(begin, bytes);
  watchers_.push_back(&watcher);
}

void DeviceMemoryRegistry::leave(MemoryWatcher& watcher) { std::erase(watchers_, &watcher); }

}  // namespace gyr::cuda
