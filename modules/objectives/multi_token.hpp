// SPDX-License-Identifier: BSD-3-Clause
// Multi-token prediction (MTP; DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2). Besides the next token, a chain of modules after the
// last layer predicts further tokens: module k predicts token t(i+k+1) at row i. The loss is
//   L = L_0 + weight / depths * (L_1 + ... + L_depths)
//   L_0 loss of next-token prediction, L_k mean loss over the rows of the global batch that have a label at depth k
// Validation and generation use the model without the MTP modules.
#pragma once

#include "modules/objectives/objective.hpp"

namespace gyr {

struct MultiToken {
  Index depths = 1;
  std::string pattern;  // layer symbols of each module
  double weight = 0.3;
  bool usual = false;  // true if `pattern` is the default, last_block(model.pattern), so that decks need not name it
};

std::shared_ptr<const Objective> multi_token(const MultiToken&);
const MultiToken* multi_token_of(const Objective&);  // settings of multi-token prediction; null if it is another objective

// Default layers of an MTP module: the last layer of the model that mixes tokens, and all layers after it, without
// cross-attention.
std::string last_block(const std::string& pattern);

}  // namespace gyr
