// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/policy/value_loss.hpp"

namespace gyr {

void value_loss(Device& dev, const ValueRows& rows, double clip, Tensor1<double> loss, Tensor1<double> slope, Tensor1<double> clipped) {
  const Index n = loss.extent(0);
  for (const auto& given : {rows.y, rows.v, rows.returns, rows.g})
    ensure(Index(given.extent(0)) == n, "value_loss: {} values do not fit {} rows", given.extent(0), n);
  ensure(Index(slope.extent(0)) == n && Index(clipped.extent(0)) == n, "value_loss: {} slopes and {} clipped rows do not fit {} rows",
         slope.extent(0), clipped.extent(0), n);
  if (const auto run = dev.launch("value_loss", 20.0 * n, sizeof(double) * 7.0 * n)) backend::value_loss(dev, rows, clip, loss, slope, clipped);
}

}  // namespace gyr
