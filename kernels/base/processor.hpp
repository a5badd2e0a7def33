// SPDX-License-Identifier: BSD-3-Clause
// CPU features that this program was compiled for (-march=native), and a check that the processor has them. If features
// are missing, the program reports them and exits with Exit::device before anything else runs. Only x86-64 processors
// are checked.
#pragma once

#include <cstddef>

namespace gyr {

// CPUID registers whose bits are features. `saved` is XCR0: the register state that the operating system saves.
enum class CpuRegister { leaf1_c, leaf7_b, leaf7_c, leaf7_d, leaf71_a, leaf71_d, amd_c, saved, count };
struct CpuRegisters {
  unsigned bits[int(CpuRegister::count)];
};
CpuRegisters cpu_registers();

// CPU features that compilers use on their own. Others (AES, SHA, SSE4a) are used only through explicit calls, and this program has none.
//   X(macro that the compiler defines, name, register, bit, state that the operating system must save: 0, ymm, zmm, or APX's registers)
#ifdef __x86_64__
#define GYR_CPU_FEATURES(X)                                      \
  X(__SSE3__, "sse3", leaf1_c, 0, 0)                             \
  X(__SSSE3__, "ssse3", leaf1_c, 9, 0)                           \
  X(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16, "cx16", leaf1_c, 13, 0) \
  X(__SSE4_1__, "sse4.1", leaf1_c, 19, 0)                        \
  X(__SSE4_2__, "sse4.2", leaf1_c, 20, 0)                        \
  X(__MOVBE__, "movbe", leaf1_c, 22, 0)                          \
  X(__POPCNT__, "popcnt", leaf1_c, 23, 0)                        \
  X(__LZCNT__, "lzcnt", amd_c, 5, 0)                             \
  X(__TBM__, "tbm", amd_c, 21, 0)                                \
  X(__BMI__, "bmi", leaf7_b, 3, 0)                               \
  X(__BMI2__, "bmi2", leaf7_b, 8, 0)                             \
  X(__AVX__, "avx", leaf1_c, 28, 0x6)                            \
  X(__F16C__, "f16c", leaf1_c, 29, 0x6)                          \
  X(__FMA__, "fma", leaf1_c, 12, 0x6)                            \
  X(__FMA4__, "fma4", amd_c, 16, 0x6)                            \
  X(__XOP__, "xop", amd_c, 11, 0x6)                              \
  X(__AVX2__, "avx2", leaf7_b, 5, 0x6)                           \
  X(__GFNI__, "gfni", leaf7_c, 8, 0)                             \
  X(__AVXVNNI__, "avx_vnni", leaf71_a, 4, 0x6)                   \
  X(__AVXVNNIINT8__, "avx_vnni_int8", leaf71_d, 4, 0x6)          \
  X(__AVXNECONVERT__, "avx_ne_convert", leaf71_d, 5, 0x6)        \
  X(__AVXVNNIINT16__, "avx_vnni_int16", leaf71_d, 10, 0x6)       \
  X(__AVX512F__, "avx512f", leaf7_b, 16, 0xe6)                   \
  X(__AVX512DQ__, "avx512dq", leaf7_b, 17, 0xe6)                 \
  X(__AVX512IFMA__, "avx512ifma", leaf7_b, 21, 0xe6)             \
  X(__AVX512CD__, "avx512cd", leaf7_b, 28, 0xe6)                 \
  X(__AVX512BW__, "avx512bw", leaf7_b, 30, 0xe6)                 \
  X(__AVX512VL__, "avx512vl", leaf7_b, 31, 0xe6)                 \
  X(__AVX512VBMI__, "avx512vbmi", leaf7_c, 1, 0xe6)              \
  X(__AVX512VBMI2__, "avx512vbmi2", leaf7_c, 6, 0xe6)            \
  X(__AVX512VNNI__, "avx512vnni", leaf7_c, 11, 0xe6)             \
  X(__AVX512BITALG__, "avx512bitalg", leaf7_c, 12, 0xe6)         \
  X(__AVX512VPOPCNTDQ__, "avx512vpopcntdq", leaf7_c, 14, 0xe6)   \
  X(__AVX512FP16__, "avx512fp16", leaf7_d, 23, 0xe6)             \
  X(__AVX512BF16__, "avx512bf16", leaf71_a, 5, 0xe6)             \
  X(__APX_F__, "apx_f", leaf71_d, 21, 0x80000)
#else
#define GYR_CPU_FEATURES(X)
#endif

struct CpuFeature {
  const char* name;
  CpuRegister where;
  int bit;
  unsigned saved;
};
inline constexpr CpuFeature cpu_features[] = {
#define GYR_CPU_FEATURE(macro, name, where, bit, saved) {name, CpuRegister::where, bit, saved},
    GYR_CPU_FEATURES(GYR_CPU_FEATURE)
#undef GYR_CPU_FEATURE
        {nullptr, CpuRegister::leaf1_c, 0, 0}};

// True for each entry of cpu_features that this program was compiled for.
extern const bool compiled_for[];

// Writes the names of the `wanted` features that the registers do not show to `text`, each after a space, and returns
// their number.
int missing_features(const bool* wanted, const CpuRegisters& cpu, char* text, std::size_t size);

}  // namespace gyr
