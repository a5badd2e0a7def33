// SPDX-License-Identifier: BSD-3-Clause
// Multi-token prediction (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2): beside the token that follows, modules in a row behind
// the last layer tell those further on, the k-th of them t(i+k+1) of row i. The loss is
//   L = L_0 + weight / depths * (L_1 + ... + L_depths)
// each L_k the mean over its own labelled rows of the whole batch. What is validated, and what writes texts, is the model without them.
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

struct MultiToken {
  Index depths = 1;
  std::string pattern;  // layers of each module
  double weight = 0.3;
  bool usual = false;  // the pattern is the model's last_block: its deck names none
};

std::shared_ptr<const Objective> multi_token(const MultiToken&);
const MultiToken* multi_token_of(const Objective&);  // null: it is another

// The layers of a module where nothing else is said: the last of a model that mixes tokens, and what stands behind it.
std::string last_block(const std::string& pattern);

}  // namespace gyr
