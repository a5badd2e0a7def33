// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/base/heap.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>

#include "kernels/base/sanitizer.hpp"

namespace gyr::testing::heap_suite {

namespace {

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Faults of taking, filling and giving back a block many times, where each time costs a thousand if its pages are new.
long faults_of_blocks(int times) {
  const std::size_t bytes = std::size_t(4) << 20;
  const long before = page_faults();
  for (int i = 0; i < times; ++i) {
    const auto block = std::make_unique_for_overwrite<char[]>(bytes);
    std::memset(block.get(), i, bytes);
    asm volatile("" : : "r"(block.get()) : "memory");  // or nothing of it would happen
  }
  return page_faults() - before;
}

}  // namespace

TEST(heap, freed_blocks_are_used_again) {
  if (address_sanitizer) GTEST_SKIP() << "the sanitizer's own heap keeps freed blocks apart";
  keep_freed_blocks();
  faults_of_blocks(1);
  EXPECT_LT(faults_of_blocks(20), 500);
}

}  // namespace gyr::testing::heap_suite
