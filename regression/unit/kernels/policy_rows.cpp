// SPDX-License-Identifier: BSD-3-Clause
// Kernel of the policy loss against plain loops, for drawn rows. The formulas themselves are judged in unit/policy/policy_loss.cpp.
#include <algorithm>
#include <random>

#include "kernels/ops/policy/policy_loss.hpp"
#include "kernels/ops/policy/value_loss.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::policy_rows_suite {
namespace {

TEST(policy_rows, kernel_matches_plain_loops) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    Workbench bench;
    const Index n = 1 + Index(random() % 700);
    std::vector<Tensor1<double>> in;
    for (int i = 0; i < 11; ++i) in.push_back(bench.normal<double>(n));
    const bool given = random() % 2, with_entropies = random() % 2;
    const PolicyClip clip{0.1, 0.3, random() % 2 ? 0 : 1.5};
    const KlEstimator k = KlEstimator(random() % 3);
    const PolicyRows rows{.cross_entropy = in[0],
                          .q = given ? in[1] : Tensor1<double>(),
                          .old = in[2],
                          .reference = in[3],
                          .advantage = in[4],
                          .correction = in[5],
                          .g = in[6],
                          .kl = in[7],
                          .entropy = in[8],
                          .share = in[9],
                          .H = with_entropies ? in[10] : Tensor1<double>()};
    const auto loss = bench.zeros<double>(n), ratio_weight = bench.zeros<double>(n), kl_weight = bench.zeros<double>(n);
    const auto figures = bench.zeros<double>(policy_figures, n);
    policy_loss(bench.dev, rows, clip, k, loss, ratio_weight, kl_weight, figures);
    for (Index r = 0; r < n; ++r) {
      const double x = -in[0](r), q = given ? in[1](r) : x - in[2](r), d = in[3](r) - x, rho = std::exp(q), a = in[4](r), w = in[5](r);
      const double H = with_entropies ? in[10](r) : 0, clipped = std::min(std::max(rho, 1 - clip.low), 1 + clip.high);
      double l = std::max(-rho * a, -clipped * a), slope = rho * a <= clipped * a ? -rho * a : 0;
      if (a < 0 && clip.dual > 0 && l > -clip.dual * a) l = -clip.dual * a, slope = 0;
      const double divergence = k == KlEstimator::none ? 0 : k == KlEstimator::k2 ? d * d / 2 : std::exp(d) - d - 1;
      const double of_kl = k == KlEstimator::none ? 0 : k == KlEstimator::k2 ? -d : 1 - std::exp(d);
      EXPECT_NEAR(loss(r), in[6](r) * l * w + in[7](r) * divergence - in[8](r) * H, 1e-11 * (1 + std::abs(loss(r)))) << r;
      EXPECT_NEAR(ratio_weight(r), -in[6](r) * slope * w, 1e-11 * (1 + std::abs(ratio_weight(r)))) << r;
      EXPECT_NEAR(kl_weight(r), -in[7](r) * of_kl, 1e-11 * (1 + std::abs(kl_weight(r)))) << r;
      EXPECT_NEAR(figures(Index(PolicyFigure::ratio), r), in[9](r) * rho, 1e-11 * (1 + rho));
      EXPECT_NEAR(figures(Index(PolicyFigure::k1), r), -in[9](r) * d, 1e-11 * (1 + std::abs(d)));
      EXPECT_EQ(figures(Index(PolicyFigure::clipped_high), r), rho > 1 + clip.high && a > 0 ? in[9](r) : 0);
    }
  }
}

TEST(policy_rows, value_kernel_matches_plain_loops) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    Workbench bench;
    const Index n = 1 + Index(random() % 700);
    const auto y = bench.normal<double>(n), v = bench.normal<double>(n), returns = bench.normal<double>(n), g = bench.normal<double>(n);
    const auto loss = bench.zeros<double>(n), slope = bench.zeros<double>(n), clipped = bench.zeros<double>(n);
    const double clip = random() % 3 ? 0.4 : 0;
    value_loss(bench.dev, {y, v, returns, g}, clip, loss, slope, clipped);
    for (Index r = 0; r < n; ++r) {
      const double limited = std::min(std::max(y(r), v(r) - clip), v(r) + clip), free = std::pow(y(r) - returns(r), 2);
      const double bounded = clip > 0 ? std::pow(limited - returns(r), 2) : free;
      EXPECT_NEAR(loss(r), g(r) / 2 * std::max(free, bounded), 1e-12 * (1 + std::abs(loss(r)))) << r;
      EXPECT_NEAR(slope(r), bounded > free ? 0 : g(r) * (y(r) - returns(r)), 1e-12 * (1 + std::abs(slope(r)))) << r;
      EXPECT_EQ(clipped(r), bounded > free ? g(r) : 0) << r;
    }
  }
}

}  // namespace
}  // namespace gyr::testing::policy_rows_suite
