// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/held_memory.hpp"

namespace gyr::cuda {

HeldMemory& HeldMemory::of_process() {
  static HeldMemory& memory = *new HeldMemory;  // as long as anything may give back
  return memory;
}

void HeldMemory::take(void* begin, Index bytes) {
  pieces_[begin] = bytes;
  for (MemoryWatcher* const watcher : watchers_) watcher->taken(begin, bytes);
}

void HeldMemory::give_back(void* begin) {
  if (pieces_.erase(begin) == 0) return;
  for (MemoryWatcher* const watcher : watchers_) watcher->given_back(begin);
}

void HeldMemory::watch(MemoryWatcher& watcher) {
  for (const auto& [begin, bytes] : pieces_) watcher.taken(begin, bytes);
  watchers_.push_back(&watcher);
}

void HeldMemory::leave(MemoryWatcher& watcher) { std::erase(watchers_, &watcher); }

}  // namespace gyr::cuda
