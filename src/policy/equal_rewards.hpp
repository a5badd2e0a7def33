// SPDX-License-Identifier: BSD-3-Clause
// Warns of policy training without a gradient: the advantages of a group of answers with equal rewards are 0.
#pragma once

#include "src/policy/policy_config.hpp"
#include "src/report/iteration_report.hpp"

namespace gyr {

class EqualRewards {
 public:
  explicit EqualRewards(const PolicyConfig& config) : by_group_(is_by_group(config.advantage.algorithm)) {}

  // Text of a warning, at most once per object; empty: none. Iterations follow one another. It is due if nearly all groups
  // of the first iterations of a run have equal rewards, or if no answer of several iterations has an advantage.
  std::string warning(const IterationReport&);

 private:
  static bool is_by_group(PolicyAlgorithm);

  bool by_group_;  // a group with equal rewards has no advantage
  bool warned_ = false;
  Index first_ = 0;   // iterations that were counted, from the first of the run
  double equal_ = 0;  // sum of their fractions of groups with equal rewards
  Index idle_ = 0;    // iterations without advantages, up to the last one
};

}  // namespace gyr
