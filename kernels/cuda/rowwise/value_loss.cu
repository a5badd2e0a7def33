// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernel of the loss of a critic. kernels/ops/policy/value_loss.hpp has the formulas.
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/policy/value_loss.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

struct ValueInputs {
  Global<const double> y, v, returns, g;
};

GYR_KERNEL value_loss_kernel(ValueInputs rows, double clip, Global<double> loss, Global<double> slope, Global<double> clipped) {
  const Index r = block_index() * block_threads() + thread_index();
  if (r >= loss.columns()) return;
  const RowValue row{rows.y.load(r), rows.v.load(r), rows.returns.load(r), rows.g.load(r)};
  loss.store(r, row.loss(clip));
  slope.store(r, row.slope(clip));
  clipped.store(r, row.is_clipped(clip) ? row.g : 0);
}

}  // namespace

void value_loss(Device& dev, const ValueRows& rows, double clip, Tensor1<double> loss, Tensor1<double> slope, Tensor1<double> clipped) {
  const ValueInputs in{rows.y, rows.v, rows.returns, rows.g};
  launch(dev, "value_loss", {ceil_div(loss.extent(0), usual_threads), usual_threads}, value_loss_kernel, in, clip, loss, slope, clipped);
}

}  // namespace gyr::backend
