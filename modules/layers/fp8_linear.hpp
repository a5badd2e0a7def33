// SPDX-License-Identifier: BSD-3-Clause
// FP8 GEMMs of a linear layer (train.fp8): y = x^ w^', dx = dy^ w^, dw = dy^' x^. Each GEMM rounds its two operands to FP8 from the values in
// the type of the model, in blocks along the dimension that it sums over (kernels/ops/fp8/fp8.hpp, modules/fp8.md). The GEMM itself is that
// of the model's type, so that every device computes it.
// With one scale per operand, that scale belongs to the rows of a micro-batch on all tensor- and context-parallel ranks, and to the full
// weight: the ranks take the maximum of their magnitudes. Blocks begin at the first row and column of this rank's part.
#pragma once

#include "kernels/ops/fp8/fp8.hpp"
#include "modules/layers/adjacent.hpp"
#include "modules/pass/pass.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

template <class T>
class Fp8Linear {
  static constexpr Index block_extent = 128, mx_extent = 32;

 public:
  Fp8Linear(Pass& a, Adjacent weights) : a_(a), dev_(a.dev), first_(first_of(weights)), outputs_(outputs_of(weights)) {}

  // y = scale x^ w^' + beta y. all_x: the rows of the micro-batch, if x has only some of them; the scale of an operand is that of all rows.
  void forward(Matrix<const T> x /*(R,K)*/, Matrix<const T> all_x, Matrix<T> y /*(R,N)*/, double scale, double beta) {
    Scope scope(dev_.scratch);
    const auto [left, right] = rounded({"FP8: rows", x, all_x, forward_format, along_row()}, weight_summed(along_row()));
    linear<T>(dev_, Tensor2<const T>(left), Tensor2<const T>(right), y, scale, beta);
  }

  // dx = scale dy^ w^ + beta dx
  void backward_input(Matrix<const T> dy /*(R,N)*/, Matrix<T> dx /*(R,K)*/, double scale, double beta) {
    Scope scope(dev_.scratch);
    const auto [left, right] = rounded({"FP8: gradients of outputs", dy, dy, gradient_format(), along_row()}, weight_summed(along_column()));
    linear_backward_input<T>(dev_, Tensor2<const T>(left), Tensor2<const T>(right), dx, scale, beta);
  }

  // dw += scale dy^' x^
  void backward_weights(Adjacent weights, Matrix<const T> dy /*(R,N)*/, Matrix<const T> x /*(R,K)*/, double scale) {
    if (std::none_of(weights.begin(), weights.end(), [](const Parameter* w) { return w && w->trained; })) return;
    Scope scope(dev_.scratch);
    const auto [left, right] =
        rounded({"FP8: gradients of outputs", dy, dy, gradient_format(), along_column()}, {"FP8: rows", x, x, forward_format, along_column()});
    weights_backward<T>(dev_, weights, Tensor2<const T>(left), Tensor2<const T>(right), scale);
  }

 private:
  static constexpr fp8::Format forward_format = fp8::Format::e4m3;

  struct Operand {
    const char* name;
    Matrix<const T> values, counted;  // counted: rows whose maximum gives the scale of the operand
    fp8::Format format;
    Fp8Block block;
  };

  // E5M2 has the range that one scale per gradient needs. Blocks have a scale each, and E4M3 keeps one more bit.
  fp8::Format gradient_format() const { return a_.fp8 == Fp8Recipe::tensor ? fp8::Format::e5m2 : fp8::Format::e4m3; }
  Index extent() const { return a_.fp8 == Fp8Recipe::blocks ? block_extent : mx_extent; }
  Fp8Block along_row() const { return {1, extent()}; }
  Fp8Block along_column() const { return {extent(), 1}; }

  Operand weight_summed(Fp8Block along) const {
    const Matrix<const T> w(first_.template matrix<const T>().data(), outputs_, first_.columns(), first_.columns());
    return {"FP8: weight", w, w, forward_format, a_.fp8 == Fp8Recipe::blocks ? Fp8Block{block_extent, block_extent} : along};
  }

  // Both operands of a GEMM, rounded, in scratch memory.
  std::pair<Tensor2<T>, Tensor2<T>> rounded(const Operand& left, const Operand& right) {
    const auto memory = [&](const Operand& of) { return dev_.scratch.named(of.name).template tensor<T>(of.values.rows, of.values.columns); };
    const std::pair to{memory(left), memory(right)};
    if (a_.fp8 == Fp8Recipe::tensor) {
      Scope scope(dev_.scratch);
      const auto largest = dev_.scratch.named("FP8: maxima of operands").template tensor<float>(Index(2));
      matrix_maximum<T>(dev_, left.counted, gyr::rows(largest, 0, 1)), matrix_maximum<T>(dev_, right.counted, gyr::rows(largest, 1, 1));
      maximum_of_ranks(largest);
      round_as_one_block(left, largest.data(), to.first), round_as_one_block(right, largest.data() + 1, to.second);
    } else {
      round_by_blocks(left, to.first), round_by_blocks(right, to.second);
    }
    return to;
  }

  void maximum_of_ranks(Tensor1<float> largest) {
    const Device::Purpose purpose(dev_, "FP8 GEMMs: maxima of both operands");
    a_.holders(first_).full().all_reduce(dev_, largest, Reduction::max);
    if (a_.context) a_.context->all_reduce(dev_, largest, Reduction::max);
  }

  void round_as_one_block(const Operand& from, const float* largest, Tensor2<T> to) {
    round_to_fp8<T>(dev_, from.values, from.format, {from.values.rows, from.values.columns}, Tensor2<const float>(largest, 1, 1), Fp8Form::values,
                    to);
  }

  void round_by_blocks(const Operand& from, Tensor2<T> to) {
    Scope scope(dev_.scratch);
    const auto largest = dev_.scratch.named("FP8: maxima of blocks")
                             .template tensor<float>(from.block.rows_of_blocks(from.values.rows), from.block.columns_of_blocks(from.values.columns));
    block_maxima<T>(dev_, from.values, from.block, largest);
    round_to_fp8<T>(dev_, from.values, from.format, from.block, largest, Fp8Form::values, to);
  }

  Pass& a_;
  Device& dev_;
  const Parameter& first_;
  Index outputs_;
};

}  // namespace gyr
