// SPDX-License-Identifier: BSD-3-Clause
// Newton-Schulz iteration for the orthogonal factor U V' of a matrix M = U S V' (Jordan et al. 2024, Amsel et al. 2025).
//   X = M / max(|M|, 1e-7);   in each step A = X X', X = a X + (b A + c A^2) X;   for more rows than columns A = X' X and
//   X = a X + X (b A + c A^2)
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/device/device.hpp"

namespace gyr {

using PolynomialSteps = std::vector<std::array<double, 3>>;  // a, b, c of each step

// Names of the coefficients, and `steps` of them. After the last published step:
//   simple         the same in every step; singular values end between 0.68 and 1.21 (Jordan et al. 2024)
//   quintic        begins again with the first; five steps end closer to 1
//   polar_express  goes on with the last; optimal for each step (Amsel et al. 2025)
std::vector<std::string> polynomial_names();
PolynomialSteps polynomials(const std::string& name, int steps);

// x = scale * orthogonal factor of x, computed in the precision of x. Uses scratch memory: (rows, columns), and twice the
// square of the shorter side.
template <class A>
void newton_schulz(Device&, const PolynomialSteps&, double scale, Tensor2<A> x);
// 4 n^2 m + 2 n^3 per step, where n is the shorter side and m the longer one.
double newton_schulz_flops(Index rows, Index columns, int steps);

}  // namespace gyr
