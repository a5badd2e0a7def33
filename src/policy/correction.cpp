// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/correction.hpp"

#include <algorithm>
#include <cmath>

namespace gyr {

namespace {

double limited(double log_weight, const CorrectionRules& rules) {
  const double w = std::exp(std::clamp(log_weight, -20.0, 20.0));
  if (rules.outside == OutsideLimits::mask) return w < rules.low || w > rules.high ? 0 : w;
  return std::clamp(w, rules.low, rules.high);
}

}  // namespace

std::vector<double> corrections_of(const Rollout& r, const CorrectionRules& rules) {
  std::vector<double> weights(std::size_t(r.length()), 1.0);
  if (rules.of == CorrectionOf::none) return weights;
  double sum = 0;
  for (std::size_t t = 0; t < weights.size(); ++t) sum += r.old[t] - r.said[t];
  for (std::size_t t = 0; t < weights.size(); ++t) weights[t] = limited(rules.of == CorrectionOf::sequence ? sum : r.old[t] - r.said[t], rules);
  return weights;
}

}  // namespace gyr
