// SPDX-License-Identifier: BSD-3-Clause
// Lets unit tests on a GPU (GYR_CUDA_MEMORY=pinned) pass host vectors to kernels. The heap is grown once and registered
// with cudaHostRegister, so that the GPU reads it at the same addresses. Every later allocation lies inside of the
// registered range.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "kernels/device/queue.hpp"

namespace {

constexpr std::size_t capacity = std::size_t(3) << 29;  // bytes; more than the largest test allocates

// Begin and end address of the heap.
struct Range {
  std::uintptr_t begin = 0, end = 0;
};
Range heap() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("[heap]") != line.npos) {
      char* rest = nullptr;
      Range range;
      range.begin = std::strtoull(line.c_str(), &rest, 16), range.end = std::strtoull(rest + 1, nullptr, 16);
      return range;
    }
  return {};
}

class PinnedHeap final : public testing::Environment {
  void SetUp() override {
    if (!gyr::backend::host_reads_memory()) return;
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    void* volatile block = std::malloc(capacity);
    std::free(block);
    const Range range = heap();
    ASSERT_GE(range.end - range.begin, capacity) << "the heap did not grow";
    ASSERT_EQ(cudaHostRegister(reinterpret_cast<void*>(range.begin), range.end - range.begin, cudaHostRegisterDefault), cudaSuccess);
  }
};

const testing::Environment* const pinned_heap = testing::AddGlobalTestEnvironment(new PinnedHeap);

}  // namespace
