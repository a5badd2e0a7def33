// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernel of the loss of policy training. kernels/ops/policy/policy_loss.hpp has the formulas.
#include "kernels/ops/policy/policy_loss.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

void policy_loss(Device& dev, const PolicyRows& rows, const PolicyClip& clip, KlEstimator k, Tensor1<double> loss, Tensor1<double> ratio_weight,
                 Tensor1<double> kl_weight, Tensor2<double> figures) {
  const Index n = loss.extent(0);
  const double *const nll = rows.cross_entropy.data(), *const q = rows.q.data(), *const old = rows.old.data(),
                      *const reference = rows.reference.data(), *const advantage = rows.advantage.data(), *const correction = rows.correction.data(),
                      *const g = rows.g.data(), *const kl = rows.kl.data(), *const entropy = rows.entropy.data(), *const share = rows.share.data(),
                      *const H = rows.H.data();
  for_flat(
      "policy_loss", dev, n, KOKKOS_LAMBDA(Index r) {
        const PolicyToken t{
            -nll[r], q ? q[r] : -nll[r] - old[r], old[r], reference[r], advantage[r], correction[r], g[r], kl[r], entropy[r], share[r], H ? H[r] : 0};
        loss.data()[r] = t.loss(clip, k);
        ratio_weight.data()[r] = t.ratio_weight(clip);
        kl_weight.data()[r] = t.kl_weight(k);
        for (Index f = 0; f < policy_figures; ++f) figures.data()[f * n + r] = t.figure(PolicyFigure(f), clip);
      });
}

}  // namespace gyr::backend
