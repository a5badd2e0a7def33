// SPDX-License-Identifier: BSD-3-Clause
// Check of the processor at start-up. This file is compiled for any processor and runs before code that is not. It uses
// only C: the linker may replace an inline C++ function by the same function of another file, compiled for a newer
// processor.
#include "kernels/base/processor.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#if defined(__SSE3__) || defined(__AVX__)
#error "this file must be compiled for every x86-64 processor: see kernels/CMakeLists.txt"
#endif

namespace gyr {

#ifdef __x86_64__

CpuRegisters cpu_registers() {
  CpuRegisters cpu{};
  const auto put = [&](CpuRegister where, unsigned value) { cpu.bits[int(where)] = value; };
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) {
    put(CpuRegister::leaf1_c, c);
    if (c & bit_OSXSAVE) {
      unsigned low = 0, high = 0;
      __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
      put(CpuRegister::saved, low);
    }
  }
  unsigned subleaves = 0;
  if (__get_cpuid_count(7, 0, &subleaves, &b, &c, &d)) {
    put(CpuRegister::leaf7_b, b), put(CpuRegister::leaf7_c, c), put(CpuRegister::leaf7_d, d);
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) put(CpuRegister::leaf71_a, a), put(CpuRegister::leaf71_d, d);
  }
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) put(CpuRegister::amd_c, c);
  return cpu;
}

static void put_processor_name(char (&name)[49]) {
  memset(name, 0, sizeof name);
  for (unsigned i = 0; i < 3; ++i) {
    unsigned r[4] = {};
    if (__get_cpuid(0x80000002 + i, &r[0], &r[1], &r[2], &r[3])) memcpy(name + 16 * i, r, sizeof r);
  }
}

#else

CpuRegisters cpu_registers() { return {}; }
static void put_processor_name(char (&name)[49]) { name[0] = 0; }

#endif

int missing_features(const bool* wanted, const CpuRegisters& cpu, char* text, size_t size) {
  int count = 0;
  text[0] = 0;
  for (int i = 0; cpu_features[i].name; ++i) {
    const CpuFeature& f = cpu_features[i];
    const bool there = (cpu.bits[int(f.where)] >> f.bit & 1) && (cpu.bits[int(CpuRegister::saved)] & f.saved) == f.saved;
    if (!wanted[i] || there) continue;
    ++count;
    if (strlen(text) + strlen(f.name) + 2 <= size) strcat(strcat(text, " "), f.name);
  }
  return count;
}

}  // namespace gyr

// Runs as the first constructor of the program. MPI has not been started, so every rank on such a processor prints the
// message. The linker includes this file because of this symbol: see kernels/CMakeLists.txt.
extern "C" __attribute__((constructor(101))) void gyr_check_processor() {
  char missing[1024], host[256] = "", name[49], line[2048];
  if (gyr::missing_features(gyr::compiled_for, gyr::cpu_registers(), missing, sizeof missing) == 0) return;
  gethostname(host, sizeof host - 1);
  gyr::put_processor_name(name);
  const int length =
      snprintf(line, sizeof line,
               "gyrfalcon: this program was compiled for another processor than that of %s (%s), which lacks:%s; configure it with "
               "-DGYR_NATIVE_ARCH=OFF to run on both, or also with -DCMAKE_CXX_FLAGS=-march=NAME of the oldest processor that it must run on\n",
               host, name, missing);
  if (write(STDERR_FILENO, line, size_t(length)) < 0) _exit(70);
  // MPICH's launcher and the other ranks would wait forever for a rank that exits before MPI_Init. This message of its
  // PMI protocol aborts the job.
  static const char abort[] = "cmd=abort exitcode=69\n";
  if (const char* launcher = getenv("PMI_FD"); launcher && write(atoi(launcher), abort, sizeof abort - 1) < 0) _exit(70);
  _exit(69);  // exit code of Exit::device
}
