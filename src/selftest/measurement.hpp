// SPDX-License-Identifier: BSD-3-Clause
// Measurements of the self-test on one rank.
#pragma once

#include <filesystem>

#include "kernels/base/scalar.hpp"
#include "src/selftest/fault.hpp"
#include "src/selftest/findings.hpp"

namespace gyr::selftest {

struct Effort {
  Index memory_bytes = Index(256) << 20;  // bytes written and read in each pattern
  int repetitions = 20;                   // of the GEMM whose bits are compared
  Index file_bytes = Index(64) << 20;
};

// Memory, arithmetic and memory bandwidth. The GEMMs multiply drawn matrices, equal on all ranks.
void measure_device(const Effort&, const Fault&, int rank, Findings&);
// Writes, flushes, reads and removes a file in the folder.
void measure_file(const Effort&, const std::filesystem::path& folder, int rank, Findings&);
// Model name of the processor, as in /proc/cpuinfo; "unknown" without this file.
std::string processor_model();

}  // namespace gyr::selftest
