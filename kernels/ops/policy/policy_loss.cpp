// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/policy/policy_loss.hpp"

namespace gyr {

void policy_loss(Device& dev, const PolicyRows& rows, const PolicyClip& clip, KlEstimator k, Tensor1<double> loss, Tensor1<double> ratio_weight,
                 Tensor1<double> kl_weight, Tensor2<double> figures) {
  const Index n = loss.extent(0);
  for (const auto& given : {rows.cross_entropy, rows.old, rows.reference, rows.advantage, rows.correction, rows.g, rows.kl, rows.entropy, rows.share})
    ensure(Index(given.extent(0)) == n, "policy_loss: {} values do not fit {} rows", given.extent(0), n);
  for (const auto& optional : {rows.q, rows.H})
    ensure(!optional.data() || Index(optional.extent(0)) == n, "policy_loss: {} values do not fit {} rows", optional.extent(0), n);
  ensure(
      Index(ratio_weight.extent(0)) == n && Index(kl_weight.extent(0)) == n && figures.extent(0) == policy_figures && Index(figures.extent(1)) == n,
      "policy_loss: {} and {} weights and figures ({},{}) do not fit {} rows", ratio_weight.extent(0), kl_weight.extent(0), figures.extent(0),
      figures.extent(1), n);
  if (const auto run = dev.launch("policy_loss", 60.0 * n, sizeof(double) * (14.0 + policy_figures) * n))
    backend::policy_loss(dev, rows, clip, k, loss, ratio_weight, kl_weight, figures);
}

}  // namespace gyr
