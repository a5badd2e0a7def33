// SPDX-License-Identifier: BSD-3-Clause
#include "modules/optimizers/newton_schulz.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/ops/gemm.hpp"
#include "kernels/ops/sum.hpp"
#include "kernels/ops/updates/muon.hpp"

namespace gyr {

namespace {

struct Published {
  bool cycles;  // begins again after the last step, instead of repeating it
  PolynomialSteps steps;
};

const std::map<std::string, Published>& published() {
  static const std::map<std::string, Published> all{
      {"simple", {true, {{3.4445, -4.7750, 2.0315}}}},
      {"quintic",
       {true,
        {{4.0848, -6.8946, 2.9270}, {3.9505, -6.3029, 2.6377}, {3.7418, -5.5913, 2.3037}, {2.8769, -3.1427, 1.2046}, {2.8366, -3.0525, 1.2012}}}},
      {"polar_express",
       {false,
        {{8.2051, -22.9019, 16.4607},
         {4.0664, -2.8612, 0.5184},
         {3.9096, -2.8234, 0.5250},
         {3.2856, -2.4153, 0.4853},
         {2.2779, -1.6198, 0.3985},
         {1.8726, -1.2307, 0.3585},
         {1.8564, -1.2132, 0.3568},
         {1.875, -1.25, 0.375}}}}};
  return all;
}

}  // namespace

std::vector<std::string> polynomial_names() {
  std::vector<std::string> names;
  for (const auto& [name, polynomials] : published()) names.push_back(name);
  return names;
}

PolynomialSteps polynomials(const std::string& name, int steps) {
  const auto& [cycles, known] = published().at(name);
  PolynomialSteps all;
  for (std::size_t k = 0; k < std::size_t(steps); ++k) all.push_back(known[cycles ? k % known.size() : std::min(k, known.size() - 1)]);
  return all;
}

template <class A>
void newton_schulz(Device& dev, const PolynomialSteps& steps, double scale, Tensor2<A> x) {
  constexpr const char* kernel = "newton_schulz";
  const Index rows = x.extent(0), columns = x.extent(1), n = std::min(rows, columns);
  const bool wide = rows <= columns;
  Scope scope(dev.scratch);
  const auto square = dev.scratch.tensor<A>(n, n), polynomial = dev.scratch.tensor<A>(n, n);
  auto from = x, to = dev.scratch.tensor<A>(rows, columns);
  const auto sum = dev.scratch.tensor<double>(1);
  fill<double>(dev, sum, 0);
  add_sum_of_squares<A>(dev, flat(x), sum);
  divide_by_norm<A>(dev, sum, flat(x));
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const auto [a, b, c] = steps[k];
    const double factor = k + 1 == steps.size() ? scale : 1;
    if (wide) gemm<A, A>(dev, MatrixOp::none, from, MatrixOp::transpose, from, square, 1, 0, kernel);
    else gemm<A, A>(dev, MatrixOp::transpose, from, MatrixOp::none, from, square, 1, 0, kernel);
    convert<A, A>(dev, square, polynomial);
    gemm<A, A>(dev, MatrixOp::none, square, MatrixOp::none, square, polynomial, c, b, kernel);
    convert<A, A>(dev, from, to);
    if (wide) gemm<A, A>(dev, MatrixOp::none, polynomial, MatrixOp::none, from, to, factor, a * factor, kernel);
    else gemm<A, A>(dev, MatrixOp::none, from, MatrixOp::none, polynomial, to, factor, a * factor, kernel);
    std::swap(from, to);
  }
  if (from.data() != x.data()) convert<A, A>(dev, from, x);
}

template void newton_schulz<float>(Device&, const PolynomialSteps&, double, Tensor2<float>);
template void newton_schulz<double>(Device&, const PolynomialSteps&, double, Tensor2<double>);

double newton_schulz_flops(Index rows, Index columns, int steps) {
  const double n = double(std::min(rows, columns)), m = double(std::max(rows, columns));
  return steps * (4 * n * n * m + 2 * n * n * n);
}

}  // namespace gyr
