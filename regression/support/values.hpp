// SPDX-License-Identifier: BSD-3-Clause
// Helpers for kernel tests: deterministic values, matrices with guarded gaps between rows, central differences.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing {

using Values = std::vector<double>;

// n deterministic values in [-1, 1) that depend only on the seed.
inline Values random_values(Index n, std::uint64_t seed) {
  Values x(n);
  std::uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;
  for (double& v : x) {
    s = s * 6364136223846793005u + 1442695040888963407u;
    std::uint64_t z = s ^ (s >> 29);
    z *= 0xbf58476d1ce4e5b9u;
    v = double((z ^ (z >> 32)) >> 11) * 0x1p-52 - 1;
  }
  return x;
}

// The values rounded to T.
template <class T>
Values rounded(Values x) {
  for (double& v : x) v = double(T(v));
  return x;
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// A matrix of T with a gap of `gap` elements after every row. The gaps hold NaN and must be neither read nor written.
template <class T>
class Block {
 public:
  Block(Index rows, Index columns, const Values& x = {}, Index gap = 0)
      : rows_(rows), columns_(columns), stride_(columns + gap), memory_(rows * stride_ + 1, hole()) {
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < columns; ++c) memory_[r * stride_ + c] = x.empty() ? hole() : T(x[r * columns + c]);
  }

  template <class U = T>
  Matrix<U> matrix() {
    return Matrix<U>(memory_.data(), rows_, columns_, stride_);
  }
  template <class U = T>
  Tensor1<U> vector() {
    return Tensor1<U>(memory_.data(), rows_ * columns_);
  }
  template <class U = T>
  Tensor2<U> tensor() {
    return Tensor2<U>(memory_.data(), rows_, columns_);
  }
  template <class U = T>
  Tensor3<U> tensor(Index a, Index b, Index c) {
    return Tensor3<U>(memory_.data(), a, b, c);
  }

  // The values row by row, without the gaps. Fails if a gap was written.
  Values values() const {
    Values x;
    for (Index r = 0; r < rows_; ++r)
      for (Index c = 0; c < stride_; ++c) {
        const double v = double(memory_[r * stride_ + c]);
        if (c < columns_) x.push_back(v);
        else EXPECT_TRUE(std::isnan(v)) << "the gap after row " << r << " was written";
      }
    return x;
  }

 private:
  static T hole() { return T(std::numeric_limits<double>::quiet_NaN()); }
  Index rows_, columns_, stride_;
  std::vector<T> memory_;
};

// Expects max |a - b| <= tolerance (1 + max |b|).
inline void expect_near(const Values& a, const Values& b, double tolerance, const char* what = "") {
  ASSERT_EQ(a.size(), b.size()) << what;
  double size = 0, error = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    size = std::max(size, std::abs(b[i]));
    const double e = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]);  // equal infinities count as equal
    if (!(e <= error)) error = e, where = i;
  }
  EXPECT_LE(error, tolerance * (1 + size)) << what << " at " << where << ": " << (a.empty() ? 0 : a[where]) << " and " << (b.empty() ? 0 : b[where]);
}

// Compares gradient(i) with the central difference of f with respect to x(i).
inline void expect_gradient(const std::function<double(const Values&)>& f, Values x, const Values& gradient, const char* what, double step = 1e-5,
                            double tolerance = 1e-7) {
  Values difference(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + step;
    const double up = f(x);
    x[i] = kept - step;
    difference[i] = (up - f(x)) / (2 * step);
    x[i] = kept;
  }
  expect_near(gradient, difference, tolerance, what);
}

// Tolerance of T relative to double, for sums of some hundred terms of order one.
template <class T>
constexpr double tolerance_of();
template <>
constexpr double tolerance_of<double>() {
  return 1e-12;
}
template <>
constexpr double tolerance_of<float>() {
  return 1e-5;
}
template <>
constexpr double tolerance_of<bf16>() {
  return 2e-2;
}

}  // namespace gyr::testing
