// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/future_tokens.hpp"

#include "kernels/ops/cross_entropy.hpp"

namespace gyr {

MtpTargets future_tokens(Index distance, Index seq_length, std::span<const Token> tokens, std::span<const Token> labels,
                         std::span<const std::int32_t> positions) {
  const Index rows = Index(tokens.size());
  MtpTargets ahead{std::vector<Token>(tokens.size(), 0), std::vector<Token>(tokens.size(), ignored_label)};
  for (Index r = 0; r < rows; ++r) {
    const Index there = r + distance;
    if (r % seq_length + distance >= seq_length) continue;
    if (!positions.empty() && positions[there] != positions[r] + distance) continue;
    ahead.tokens[r] = tokens[there], ahead.labels[r] = labels[there];
  }
  return ahead;
}

}  // namespace gyr
