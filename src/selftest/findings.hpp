// SPDX-License-Identifier: BSD-3-Clause
// Results of the self-test of one rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/json.hpp"

namespace gyr::selftest {

// One exchange of messages with another rank.
struct Exchange {
  int partner = 0;
  bool right = true;   // the expected bytes arrived within the time limit
  double seconds = 0;  // shortest of its repetitions
};

// Precisions of the GEMM whose results are compared.
inline constexpr std::array precisions{"fp64", "fp32", "bf16"};

struct Findings {
  std::string host, processor;
  int place = 0;                                         // index of the rank on its host
  bool memory_right = true;                              // all patterns were read back
  bool repeats = true;                                   // a repeated GEMM gave the same bits
  bool collectives_right = true;                         // all-reduce and all-to-all
  bool file_right = true;                                // true if no file was written
  std::array<std::uint64_t, precisions.size()> sums{};   // checksum of the GEMM in each precision
  double memory_rate = 0, gemm_rate = 0, file_rate = 0;  // bytes/s, flop/s, bytes/s; 0: not measured
  std::vector<Exchange> exchanges;
};

Json json_of(const Findings&);
// Exit::data naming `origin` if the object is not one that json_of wrote.
Findings findings_in(const Json&, const std::string& origin);

}  // namespace gyr::selftest
