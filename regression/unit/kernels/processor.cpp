// SPDX-License-Identifier: BSD-3-Clause
// CPU feature check: the program names exactly the required features that the processor lacks. commands/processor.cpp
// starts the program on an older processor.
#include "kernels/base/processor.hpp"

#include <random>
#include <vector>

#include "regression/support/testing.hpp"

namespace gyr::testing::processor_suite {

namespace {

std::vector<CpuFeature> features() {
  std::vector<CpuFeature> all;
  for (const CpuFeature* f = cpu_features; f->name; ++f) all.push_back(*f);
  return all;
}

CpuRegisters everything() {
  CpuRegisters cpu;
  for (unsigned& bits : cpu.bits) bits = ~0u;
  return cpu;
}

std::string missing(const std::vector<bool>& wanted, const CpuRegisters& cpu, std::size_t size = 1024) {
  const std::unique_ptr<bool[]> flags(new bool[wanted.size() + 1]);
  std::copy(wanted.begin(), wanted.end(), flags.get());
  std::vector<char> text(size + 8, '#');
  missing_features(flags.get(), cpu, text.data(), size);
  EXPECT_EQ(std::string(text.end() - 8, text.end()), "########") << "written past the end of the buffer";
  return text.data();
}

}  // namespace

// 1000 random sets of required features on 1000 random processors.
TEST(processor, missing_features_are_named) {
  const auto all = features();
  if (all.empty()) GTEST_SKIP() << "no features are checked on this processor architecture";
  const unsigned seed = 20261;
  std::mt19937 draw(seed);
  for (int trial = 0; trial < 1000; ++trial) {
    CpuRegisters cpu = everything();
    std::vector<bool> wanted, has;
    for (const CpuFeature& f : all) {
      wanted.push_back(draw() % 2), has.push_back(draw() % 8);
      if (!has.back()) cpu.bits[int(f.where)] &= ~(1u << f.bit);
    }
    std::string expected;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (wanted[i] && !has[i]) expected += std::string(" ") + all[i].name;
    ASSERT_EQ(missing(wanted, cpu), expected) << "seed " << seed << ", trial " << trial;
  }
}

// A virtual machine may report features whose registers it does not save.
TEST(processor, feature_needs_registers_saved_by_the_system) {
  const std::vector<bool> wanted(features().size(), true);
  for (const unsigned saved : {0u, 0x2u, 0x6u, 0xe6u, 0x800e6u}) {
    CpuRegisters cpu = everything();
    cpu.bits[int(CpuRegister::saved)] = saved;
    std::string expected;
    for (const CpuFeature& f : features())
      if (f.saved & ~saved) expected += std::string(" ") + f.name;
    EXPECT_EQ(missing(wanted, cpu), expected) << std::hex << saved;
  }
}

TEST(processor, long_list_is_truncated_to_the_buffer) {
  const std::vector<bool> wanted(features().size(), true);
  const std::string full = missing(wanted, {});
  for (std::size_t size = 1; size < full.size(); ++size) {
    const std::string text = missing(wanted, {}, size);
    ASSERT_LT(text.size(), size);
  }
}

// Every feature bit of the table agrees with __builtin_cpu_supports on this machine. The compiler does not know all
// features of the table.
TEST(processor, registers_agree_with_builtin_cpu_supports) {
#ifdef __x86_64__
  const std::vector<std::pair<std::string, bool>> known = {{"sse3", __builtin_cpu_supports("sse3")},
                                                           {"ssse3", __builtin_cpu_supports("ssse3")},
                                                           {"sse4.1", __builtin_cpu_supports("sse4.1")},
                                                           {"sse4.2", __builtin_cpu_supports("sse4.2")},
                                                           {"popcnt", __builtin_cpu_supports("popcnt")},
                                                           {"avx", __builtin_cpu_supports("avx")},
                                                           {"avx2", __builtin_cpu_supports("avx2")},
                                                           {"bmi", __builtin_cpu_supports("bmi")},
                                                           {"bmi2", __builtin_cpu_supports("bmi2")},
                                                           {"fma", __builtin_cpu_supports("fma")},
                                                           {"fma4", __builtin_cpu_supports("fma4")},
                                                           {"xop", __builtin_cpu_supports("xop")},
                                                           {"gfni", __builtin_cpu_supports("gfni")},
                                                           {"avx512f", __builtin_cpu_supports("avx512f")},
                                                           {"avx512dq", __builtin_cpu_supports("avx512dq")},
                                                           {"avx512cd", __builtin_cpu_supports("avx512cd")},
                                                           {"avx512bw", __builtin_cpu_supports("avx512bw")},
                                                           {"avx512vl", __builtin_cpu_supports("avx512vl")},
                                                           {"avx512ifma", __builtin_cpu_supports("avx512ifma")},
                                                           {"avx512vbmi", __builtin_cpu_supports("avx512vbmi")},
                                                           {"avx512vbmi2", __builtin_cpu_supports("avx512vbmi2")},
                                                           {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
                                                           {"avx512bitalg", __builtin_cpu_supports("avx512bitalg")},
                                                           {"avx512vpopcntdq", __builtin_cpu_supports("avx512vpopcntdq")},
                                                           {"avx512bf16", __builtin_cpu_supports("avx512bf16")}};
  const auto all = features();
  for (const auto& [name, there] : known) {
    std::vector<bool> wanted;
    for (const CpuFeature& f : all) wanted.push_back(name == f.name);
    ASSERT_EQ(std::count(wanted.begin(), wanted.end(), true), 1) << name;
    EXPECT_EQ(missing(wanted, cpu_registers()).empty(), there) << name;
  }
#endif
}

// The file with the feature table must be compiled with the same target flags as this file.
TEST(processor, compiled_features_match_compiler_macros) {
  const auto built = [](const char* name) {
    const auto all = features();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].name == std::string(name)) return compiled_for[i];
    return false;
  };
#ifdef __AVX2__
  EXPECT_TRUE(built("avx2"));
#else
  EXPECT_FALSE(built("avx2"));
#endif
#ifdef __AVX512F__
  EXPECT_TRUE(built("avx512f"));
#else
  EXPECT_FALSE(built("avx512f"));
#endif
}

}  // namespace gyr::testing::processor_suite
