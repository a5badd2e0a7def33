// SPDX-License-Identifier: BSD-3-Clause
// GEMM of a few rows with a matrix (N,K), which is read from memory once in its stored format. Token generation spends
// most of its time here. Every output element is summed in its own fixed order, independent of the other rows.
#pragma once

#include <cmath>
#include <utility>

#include "kernels/kokkos/rows.hpp"
#include "kernels/kokkos/vectors.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/int8_matrix.hpp"

namespace gyr {

namespace few {

// A matrix of float or bf16. The rows x are converted to float.
template <class W>
class Stored {
 public:
  explicit Stored(Matrix<const W> w) : w_(w) {}
  Index rows() const { return w_.rows; }
  // Converts the rows x to float, padded with zeros to a multiple of `step`. Allocates scratch, in a dry run as well.
  template <class T>
  void take(Device& dev, Matrix<const T> x) {
    const auto wide = dev.scratch.tensor<float>(x.rows, ceil_div(x.columns, step) * step);
    x_ = Matrix<float>(wide);
    if (dev.dry_run()) return;
    for (Index r = 0; r < x.rows; ++r)
      for (Index k = 0; k < x_.columns; ++k) wide(r, k) = k < x.columns ? float(x(r, k)) : 0.0f;
  }
  // out[i] = dot product of row i of x and row n of the matrix.
  template <std::size_t... i>
  void multiply(Index n, float* out, std::index_sequence<i...>) const {
    Floats even[sizeof...(i)] = {}, odd[sizeof...(i)] = {};
    const auto add = [&](const float* x, const W* w) {
      const Floats first = load(w), second = load(w + vector_lanes);
      ((even[i] += load(x + i * x_.stride) * first), ...);
      ((odd[i] += load(x + i * x_.stride + vector_lanes) * second), ...);
    };
    const W* const w = w_.row(n);
    const Index full_columns = w_.columns / step * step;
    for (Index k = 0; k < full_columns; k += step) {
      if constexpr (sizeof...(i) > 4) __builtin_prefetch(reinterpret_cast<const char*>(w + k) + ahead);
      add(x_.data + k, w + k);
    }
    if (full_columns < w_.columns) {
      W rest[step] = {};
      std::copy(w + full_columns, w + w_.columns, rest);
      add(x_.data + full_columns, rest);
    }
    ((out[i] = total(even[i] + odd[i])), ...);
  }

 private:
  static constexpr Index step = 2 * vector_lanes;
  static constexpr Index ahead = 4096;  // software prefetch distance in bytes, used with more than 4 rows
  Matrix<const W> w_;
  Matrix<const float> x_;
};

// A matrix of int8. Blocks of x are quantized to int16, with an error of at most 1/65534 of the block's largest
// magnitude. The 64 terms of a block's dot product are summed in int32 without rounding, since the sum stays below
// 2^31.
class Quantized {
 public:
  explicit Quantized(const Int8Matrix& w) : w_(w) {}
  Index rows() const { return w_.rows; }
  template <class T>
  void take(Device& dev, Matrix<const T> x) {
    const Index blocks = w_.blocks();
    x_ = dev.scratch.tensor<std::int16_t>(x.rows, blocks * block);
    scales_ = dev.scratch.tensor<float>(x.rows, blocks);
    if (dev.dry_run()) return;
    for (Index r = 0; r < x.rows; ++r)
      for (Index b = 0; b < blocks; ++b) scales_(r, b) = quantize_block(x.row(r) + b * block, least(block, x.columns - b * block), &x_(r, b * block));
  }
  template <std::size_t... i>
  void multiply(Index n, float* out, std::index_sequence<i...>) const {
    Floats sums[sizeof...(i)] = {};
    const Index blocks = w_.blocks();
    const float* const scales = w_.scales + n * blocks;
    const auto add = [&](Index b, const std::int8_t* w) {
      const Int16Pairs first = load_pairs(w), second = load_pairs(w + block / 2);
      const auto dot = [&](const std::int16_t* x) {
        return to_floats(multiply_pairs(load_pairs(x), first) + multiply_pairs(load_pairs(x + block / 2), second));
      };
      ((sums[i] += scales[b] * scales_(i, b) * dot(&x_(i, b * block))), ...);
    };
    const std::int8_t* const w = w_.values + n * w_.columns;
    const Index full_columns = w_.columns / block;
    for (Index b = 0; b < full_columns; ++b) {
      __builtin_prefetch(w + b * block + ahead);
      add(b, w + b * block);
    }
    if (full_columns < blocks) {
      std::int8_t rest[block] = {};
      std::copy(w + full_columns * block, w + w_.columns, rest);
      add(full_columns, rest);
    }
    ((out[i] = total(sums[i])), ...);
  }

 private:
  static constexpr Index block = Int8Matrix::block, ahead = 4096;
  static_assert(block == 4 * vector_lanes);

  // Quantizes a block of x and returns its scale. The scale is NaN if an element of x is not finite.
  template <class T>
  static float quantize_block(const T* x, Index n, std::int16_t* to) {
    float most = 0, none = 0;
    for (Index k = 0; k < n; ++k) {
      most = std::max(most, std::abs(float(x[k])));
      none += float(x[k]) * 0;
    }
    const float scale = most / 32767 + none;
    for (Index k = 0; k < block; ++k) to[k] = k < n && scale > 0 ? std::int16_t(std::rint(float(x[k]) / scale)) : std::int16_t(0);
    return scale;
  }

  Int8Matrix w_;
  Tensor2<std::int16_t> x_;
  Tensor2<float> scales_;
};

template <int rows, class W, class S>
void multiply_few_rows(Device& dev, const W& w, Matrix<S> y, float alpha, float beta) {
  for_rows(
      dev, "few_rows", w.rows(), KOKKOS_LAMBDA(const Index n) {
        float out[rows];
        w.multiply(n, out, std::make_index_sequence<rows>());
        for (int m = 0; m < rows; ++m) y(m, n) = S(alpha * out[m] + (beta == 0 ? 0.0f : beta * float(y(m, n))));
      });
}

// Calls multiply_few_rows() with the number of rows of y as a template argument.
template <class W, class S, int... rows>
void multiply_rows(Device& dev, const W& w, Matrix<S> y, float alpha, float beta, std::integer_sequence<int, rows...>) {
  ((y.rows == rows + 1 ? multiply_few_rows<rows + 1>(dev, w, y, alpha, beta) : void()), ...);
}

}  // namespace few

// y = alpha x w' + beta y for at most few_rows rows. w: Stored or Quantized. Allocates scratch until the end of the
// caller's scope, in a dry run as well.
template <class T, class W, class S>
void few_rows_gemm_of(Device& dev, Matrix<const T> x, W w, Matrix<S> y, double alpha, double beta) {
  w.take(dev, x);
  if (!dev.dry_run()) few::multiply_rows(dev, w, y, float(alpha), float(beta), std::make_integer_sequence<int, int(few_rows)>());
}

}  // namespace gyr
