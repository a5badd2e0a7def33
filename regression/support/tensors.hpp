// SPDX-License-Identifier: BSD-3-Clause
// Tensors for kernel tests: random values, comparison with doubles, gradients by finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/device/random.hpp"
#include "regression/support/values.hpp"

namespace gyr::testing {

// A device and the memory of one test.
struct Workbench {
  Device dev{false, Index(1) << 24};
  Arena arena{Memory::activations, Index(1) << 26};
  int drawn = 0;

  template <class T>
  Tensor1<T> zeros(Index n) {
    const auto x = arena.tensor<T>(n);
    std::fill_n(x.data(), n, T(0.0f));
    return x;
  }
  template <class T>
  Tensor2<T> zeros(Index rows, Index columns) {
    return Tensor2<T>(zeros<T>(rows * columns).data(), rows, columns);
  }

  // Normally distributed values, rounded to bf16 so that every type T represents them exactly. Each call draws new
  // values.
  template <class T>
  Tensor1<T> normal(Index n) {
    const auto x = arena.tensor<T>(n);
    const Stream stream(1, std::to_string(drawn++));
    for (Index i = 0; i < n; ++i) x(i) = T(float(bf16(stream.normal(i))));
    return x;
  }
  template <class T>
  Tensor2<T> normal(Index rows, Index columns) {
    return Tensor2<T>(normal<T>(rows * columns).data(), rows, columns);
  }

  template <class View>
  View copy(const View& x) {
    const View y(arena.tensor<typename View::value_type>(x.span()).data(), x.layout());
    std::copy_n(x.data(), x.span(), y.data());
    return y;
  }
};

// Tolerance of a kernel in T against double, relative to the largest element of a tensor.
template <class T>
inline constexpr double tolerance = 1e-13;
template <>
inline constexpr double tolerance<float> = 1e-5;
template <>
inline constexpr double tolerance<bf16> = 2e-2;

// The values in storage order, or row by row for a strided matrix.
template <class View>
std::vector<double> values_of(const View& x) {
  std::vector<double> v(x.span());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = double(x.data()[i]);
  return v;
}
template <class T>
std::vector<double> values_of(const Matrix<T>& x) {
  std::vector<double> v;
  for (Index r = 0; r < x.rows; ++r)
    for (Index c = 0; c < x.columns; ++c) v.push_back(double(x(r, c)));
  return v;
}

// Largest |a - b| relative to the largest |b|; infinite if a value is NaN or the sizes differ.
inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double error = 0, largest = 1e-300;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= error)) error = std::isnan(a[i] - b[i]) ? INFINITY : std::abs(a[i] - b[i]);
    largest = std::max(largest, std::abs(b[i]));
  }
  return error / largest;
}

// Gradient d loss() / d x by fourth-order central differences. x is restored.
template <class Loss>
std::vector<double> slope(Tensor1<double> x, const Loss& loss) {
  constexpr double h = 1e-3;
  std::vector<double> d(x.extent(0));
  for (std::size_t i = 0; i < d.size(); ++i) {
    const double at = x(i);
    const auto moved = [&](double by) {
      x(i) = at + by;
      return loss();
    };
    d[i] = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    x(i) = at;
  }
  return d;
}

// True if both tensors are bitwise equal.
template <class View>
bool same_bits(const View& a, const View& b) {
  return a.span() == b.span() && std::memcmp(a.data(), b.data(), a.span() * sizeof(*a.data())) == 0;
}

}  // namespace gyr::testing
