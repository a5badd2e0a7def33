// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernel of the loss of a critic. kernels/ops/policy/value_loss.hpp has the formulas.
#include "kernels/ops/policy/value_loss.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

void value_loss(Device& dev, const ValueRows& rows, double clip, Tensor1<double> loss, Tensor1<double> slope, Tensor1<double> clipped) {
  const double *const y = rows.y.data(), *const v = rows.v.data(), *const returns = rows.returns.data(), *const g = rows.g.data();
  for_flat(
      "value_loss", dev, Index(loss.extent(0)), KOKKOS_LAMBDA(Index r) {
        const RowValue row{y[r], v[r], returns[r], g[r]};
        loss.data()[r] = row.loss(clip);
        slope.data()[r] = row.slope(clip);
        clipped.data()[r] = row.is_clipped(clip) ? row.g : 0;
      });
}

}  // namespace gyr::backend
