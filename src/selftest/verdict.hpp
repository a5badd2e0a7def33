// SPDX-License-Identifier: BSD-3-Clause
// Verdict of the self-test over all ranks. A wrong bit or an exchange beyond the time limit is bad. A rate is slow if it is
// below 0.8 of the median of its kind and more than three median absolute deviations below it. The median is one of ranks
// with the same processor.
// Exchanges accuse both ranks. A rank is blamed if more than half of its exchanges are wrong and those of its partners are
// right without it. Wrong exchanges of no such rank are links that cannot be attributed.
#pragma once

#include <string>
#include <vector>

#include "src/selftest/findings.hpp"

namespace gyr::selftest {

enum class Grade { slow, bad };

struct Blame {
  int rank = 0;
  Grade grade = Grade::bad;
  std::string why;
};

struct Verdict {
  std::vector<Blame> blames;      // by rank, the bad ones first
  std::vector<std::string> open;  // findings that no single rank explains
  bool healthy() const { return blames.empty() && open.empty(); }
};

// `rates`: also compare rates, which says nothing if ranks share processor cores.
Verdict verdict_of(const std::vector<Findings>&, bool rates);

// Ranks of the same host and place that are slower than 0.8 of their rate in earlier findings.
std::vector<Blame> slower_than(const std::vector<Findings>& earlier, const std::vector<Findings>& now);

}  // namespace gyr::selftest
