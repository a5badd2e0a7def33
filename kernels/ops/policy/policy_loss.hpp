// SPDX-License-Identifier: BSD-3-Clause
// Loss of policy training from rewards, for one row (a token of an answer) at a time:
//   loss = g max(-rho a, -clip(rho, 1 - low, 1 + high) a) w + b K(x, f) - e H
//   rho  exp(q), ratio of the new to the old probability: q = x - o per token (PPO, Schulman et al. 2017), or its mean
//        over the answer (GSPO, Zheng et al. 2025)
//   x, o, f  log-probabilities of the token under the new, the old and the reference policy
//   a advantage, w correction for the policy that drew the answer, g weight of the row in the loss
//   K estimator of the KL divergence (Schulman 2020), with d = f - x: k2 = d^2 / 2, k3 = e^d - d - 1
//   b weight of K, H entropy of the row's distribution, e its weight
// If a < 0 and dual_clip c > 0, the maximum is limited to -c a (Ye et al. 2020). Exponents are clamped to +-20.
// The gradient is that of the cross-entropy -x times a weight per row. It is split, because q may be a mean:
//   ratio_weight = -dloss/dq,  kl_weight = -dloss/dx through K
// Rows outside of answers have g = b = e = 0.
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

enum class KlEstimator { none, k2, k3 };

struct PolicyClip {
  double low = 0.2, high = 0.2;  // clip widths
  double dual = 0;               // c; 0: no limit for negative advantages
};

// Values per row, which the loss sums: ratio rho, |x - o|, 1 if the row is clipped at 1 - low or at 1 + high, k1 = x - f and k3 against
// the reference, rho - q - 1 (k3 against the old policy), and the entropy, each times the row's share of all answer tokens.
enum class PolicyFigure { ratio, log_ratio, clipped_low, clipped_high, k1, k3, k3_old, entropy };
inline constexpr const char* policy_figure_names[] = {"ratio", "log_ratio", "clipped_low", "clipped_high", "kl_k1", "kl_k3", "kl_old", "entropy"};
inline constexpr Index policy_figures = 8;

// Arrays (R) of one value per row, named as in the formula.
struct PolicyRows {
  Tensor1<const double> cross_entropy;  // -x
  Tensor1<const double> q;              // empty: x - old
  Tensor1<const double> old, reference, advantage, correction, g, kl /*b*/, entropy /*e*/, share;
  Tensor1<const double> H;  // entropy of each row; empty: not computed, counts as 0
};

// The formulas of one row.
struct PolicyToken {
  double x = 0, q = 0, old = 0, reference = 0, advantage = 0, correction = 1, g = 0, kl = 0, entropy = 0, share = 0, H = 0;

  GYR_FUNCTION static double clamped(double exponent) { return exponent > 20 ? 20 : exponent < -20 ? -20 : exponent; }
  GYR_FUNCTION static double k3(double d) { return std::exp(clamped(d)) - d - 1; }
  GYR_FUNCTION double ratio() const { return std::exp(clamped(q)); }
  GYR_FUNCTION bool is_low(const PolicyClip& clip) const { return ratio() < 1 - clip.low && advantage < 0; }
  GYR_FUNCTION bool is_high(const PolicyClip& clip) const { return ratio() > 1 + clip.high && advantage > 0; }
  GYR_FUNCTION bool is_dual(const PolicyClip& clip) const { return clip.dual > 0 && advantage < 0 && ratio() > clip.dual; }
  GYR_FUNCTION double surrogate(const PolicyClip& clip) const {
    const double at = is_low(clip) ? 1 - clip.low : is_high(clip) ? 1 + clip.high : is_dual(clip) ? clip.dual : ratio();
    return -at * advantage * correction;
  }
  GYR_FUNCTION double divergence(KlEstimator k) const {
    const double d = reference - x;
    return k == KlEstimator::k2 ? d * d / 2 : k == KlEstimator::k3 ? k3(d) : 0;
  }
  GYR_FUNCTION double loss(const PolicyClip& clip, KlEstimator k) const { return g * surrogate(clip) + kl * divergence(k) - entropy * H; }
  GYR_FUNCTION double ratio_weight(const PolicyClip& clip) const {
    return is_low(clip) || is_high(clip) || is_dual(clip) ? 0 : g * ratio() * advantage * correction;
  }
  GYR_FUNCTION double kl_weight(KlEstimator k) const {
    const double d = reference - x;
    return k == KlEstimator::k2 ? kl * d : k == KlEstimator::k3 ? kl * (std::exp(clamped(d)) - 1) : 0;
  }
  GYR_FUNCTION double figure(PolicyFigure f, const PolicyClip& clip) const {
    switch (f) {
      case PolicyFigure::ratio: return share * ratio();
      case PolicyFigure::log_ratio: return share * (x < old ? old - x : x - old);
      case PolicyFigure::clipped_low: return is_low(clip) ? share : 0;
      case PolicyFigure::clipped_high: return is_high(clip) ? share : 0;
      case PolicyFigure::k1: return share * (x - reference);
      case PolicyFigure::k3: return share * k3(reference - x);
      case PolicyFigure::k3_old: return share * k3(q);
      case PolicyFigure::entropy: return share * H;
    }
    return 0;
  }
};

// figures: rows in the order of PolicyFigure.
void policy_loss(Device&, const PolicyRows&, const PolicyClip&, KlEstimator, Tensor1<double> loss /*(R)*/, Tensor1<double> ratio_weight /*(R)*/,
                 Tensor1<double> kl_weight /*(R)*/, Tensor2<double> figures /*(8,R)*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

void policy_loss(Device&, const PolicyRows&, const PolicyClip&, KlEstimator, Tensor1<double> loss, Tensor1<double> ratio_weight,
                 Tensor1<double> kl_weight, Tensor2<double> figures);

}  // namespace backend

}  // namespace gyr
