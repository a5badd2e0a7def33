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

// Page faults of allocating, filling and freeing a 4 MiB block `times` times. Each time causes about a thousand faults
// if its pages are new.
long faults_of_blocks(int times) {
  const std::size_t bytes = std::size_t(4) << 20;
  const long before = page_faults();
  for (int i = 0; i < times; ++i) {
    const auto block = std::make_unique_for_overwrite<char[]>(bytes);
    std::memset(block.get(), i, bytes);
    asm volatile("" : : "r"(block.get()) : "memory");  // keeps the compiler from removing the loop body
  }
  return page_faults() - before;
}

}  // namespace

TEST(heap, freed_blocks_are_reused) {
  if (address_sanitizer) GTEST_SKIP() << "AddressSanitizer's heap does not reuse freed blocks";
  keep_freed_blocks();
  faults_of_blocks(1);
  EXPECT_LT(faults_of_blocks(20), 500);
}

}  // namespace gyr::testing::heap_suite
