// SPDX-License-Identifier: BSD-3-Clause
// Loss of a critic (value model), for one row at a time: the squared distance of the value from the return, clipped around the value before the
// update (PPO2 of OpenAI Baselines):
//   loss = g / 2 max((y - R)^2, (clip(y, v - e, v + e) - R)^2)
//   y value, v value before the update, R return, e clip width (0: no clip), g weight of the row; rows outside of answers have g = 0
//   slope = dloss/dy = g (y - R), or 0 where the clipped term is larger
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

// Arrays (R) of one value per row, named as in the formula.
struct ValueRows {
  Tensor1<const double> y, v, returns, g;
};

// The formulas of one row.
struct RowValue {
  double y = 0, v = 0, returns = 0, g = 0;

  GYR_FUNCTION double limited(double clip) const { return y < v - clip ? v - clip : y > v + clip ? v + clip : y; }
  GYR_FUNCTION static double square(double x) { return x * x; }
  GYR_FUNCTION bool is_clipped(double clip) const { return clip > 0 && square(limited(clip) - returns) > square(y - returns); }
  GYR_FUNCTION double loss(double clip) const { return g / 2 * square((is_clipped(clip) ? limited(clip) : y) - returns); }
  GYR_FUNCTION double slope(double clip) const { return is_clipped(clip) ? 0 : g * (y - returns); }
};

// clipped: g where the clipped term is larger, else 0.
void value_loss(Device&, const ValueRows&, double clip, Tensor1<double> loss /*(R)*/, Tensor1<double> slope /*(R)*/, Tensor1<double> clipped /*(R)*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

void value_loss(Device&, const ValueRows&, double clip, Tensor1<double> loss, Tensor1<double> slope, Tensor1<double> clipped);

}  // namespace backend

}  // namespace gyr
