// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernel of the loss of policy training. kernels/ops/policy/policy_loss.hpp has the formulas.
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/policy/policy_loss.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

struct PolicyInputs {
  Global<const double> cross_entropy, q, old, reference, advantage, correction, g, kl, entropy, share, H;

  GYR_DEVICE PolicyToken token(Index r) const {
    const double x = -cross_entropy.load(r);
    return {x,
            q ? q.load(r) : x - old.load(r),
            old.load(r),
            reference.load(r),
            advantage.load(r),
            correction.load(r),
            g.load(r),
            kl.load(r),
            entropy.load(r),
            share.load(r),
            H ? H.load(r) : 0};
  }
};

GYR_KERNEL policy_loss_kernel(PolicyInputs rows, PolicyClip clip, KlEstimator k, Global<double> loss, Global<double> ratio_weight,
                              Global<double> kl_weight, Global<double> figures) {
  const Index r = block_index() * block_threads() + thread_index();
  if (r >= loss.columns()) return;
  const PolicyToken t = rows.token(r);
  loss.store(r, t.loss(clip, k));
  ratio_weight.store(r, t.ratio_weight(clip));
  kl_weight.store(r, t.kl_weight(k));
  for (Index f = 0; f < policy_figures; ++f) figures.store(f, r, t.figure(PolicyFigure(f), clip));
}

}  // namespace

void policy_loss(Device& dev, const PolicyRows& rows, const PolicyClip& clip, KlEstimator k, Tensor1<double> loss, Tensor1<double> ratio_weight,
                 Tensor1<double> kl_weight, Tensor2<double> figures) {
  const PolicyInputs in{rows.cross_entropy, rows.q,     rows.old, rows.reference, rows.advantage, rows.correction, rows.g, rows.kl,
                        rows.entropy,       rows.share, rows.H};
  launch(dev, "policy_loss", {ceil_div(loss.extent(0), usual_threads), usual_threads}, policy_loss_kernel, in, clip, k, loss, ratio_weight, kl_weight,
         figures);
}

}  // namespace gyr::backend
