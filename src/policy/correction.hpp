// SPDX-License-Identifier: BSD-3-Clause
// Corrections for a difference between the policy that wrote an answer and the policy that is trained (truncated importance sampling): weights of
// the answer tokens in the policy loss,
//   w = exp(old - said) per token, or exp(sum over the answer of old - said)
// limited to [low, high], or 0 outside of it. Tokens with weight 0 count neither in the loss nor in the counts that it is divided by.
// Sources: Espeholt et al. 2018 (truncation), Hilton et al. 2022 (decoupled PPO).
#pragma once

#include "src/policy/rollout.hpp"

namespace gyr {

enum class CorrectionOf { none, token, sequence };
enum class OutsideLimits { clip, mask };

struct CorrectionRules {
  CorrectionOf of = CorrectionOf::none;
  double low = 0, high = 2;
  OutsideLimits outside = OutsideLimits::clip;
};

// Weight of each answer token; 1 without a correction.
std::vector<double> corrections_of(const Rollout&, const CorrectionRules&);

}  // namespace gyr
