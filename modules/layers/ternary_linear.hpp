// SPDX-License-Identifier: BSD-3-Clause
// Linear layer with ternary weights and int8 activations, and straight-through gradients. kernels/ops/ternary/ternary.hpp has the formulas.
// The scale of a section of the weight is that of the full section: the tensor-parallel ranks sum |W|, and ranks that hold the same part
// count it once. The scale of an input row is that of the full row. In a row-parallel layer, whose ranks hold columns of the row, the
// ranks take the maximum of their magnitudes. The forward saves both, so that a backward exchanges nothing.
#pragma once

#include "modules/layers/adjacent.hpp"
#include "modules/pass/pass.hpp"
#include "modules/weights/ternary_sections.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

// Magnitude of each row of x, the input of a row-parallel layer with the weight w: the maximum over its tensor-parallel ranks. It is saved
// for the backward. Nothing is saved if the layer is not ternary.
template <class T>
Tensor1<Acc<T>> save_magnitudes(Pass& a, Frame& frame, const Key<Tensor1<Acc<T>>>& key, const Parameter& w,
                                std::type_identity_t<Tensor2<const T>> x /*(R,K)*/) {
  const auto largest = frame.put(key, w.ternary ? Index(x.extent(0)) : Index(0));
  if (!w.ternary || !frame.wants(key)) return largest;
  row_magnitudes<T>(a.dev, x, largest);
  const Device::Purpose purpose(a.dev, "ternary layers: maxima of rows");
  a.holders(w).full().all_reduce(a.dev, largest, Reduction::max);
  return largest;
}

// A ternary layer in one pass. `largest`: magnitudes of the input rows, if the layer is row parallel; otherwise empty.
template <class T>
class TernaryLinear {
  using A = Acc<T>;

 public:
  TernaryLinear(Pass& a, Adjacent weights)
      : a_(a), dev_(a.dev), first_(first_of(weights)), sections_(sections_of({weights.begin(), weights.size()})),
        scales_(first_.template ternary_scales<A>(sections_.count)) {}

  // y = scale x^ W^' + beta y. Computes and keeps the scales of the weight.
  void forward(Matrix<const T> x /*(R,K)*/, Tensor1<const A> largest, Matrix<T> y /*(R,N)*/, double scale, double beta) {
    Scope scope(dev_.scratch);
    find_scales();
    const auto magnitudes = magnitudes_of(x, largest);
    const auto q = quantized_weight(Ternary::codes);
    const auto codes = dev_.scratch.named("ternary: codes of rows").template tensor<T>(x.rows, x.columns);
    const auto products = dev_.scratch.named("ternary: products of codes").template tensor<A>(x.rows, y.columns);
    quantize_rows<T>(dev_, x, magnitudes, Ternary::codes, codes);
    linear<T, A>(dev_, Tensor2<const T>(codes), Tensor2<const T>(q), Matrix<A>(products));
    scale_products<T>(dev_, products, magnitudes, sections_, scales_, scale, beta, y);
  }

  // dx = scale dy W^ + beta dx
  void backward_input(Matrix<const T> dy /*(R,N)*/, Matrix<T> dx /*(R,K)*/, double scale, double beta) {
    Scope scope(dev_.scratch);
    linear_backward_input<T>(dev_, dy, Tensor2<const T>(quantized_weight(Ternary::values)), dx, scale, beta);
  }

  // dW += scale dy' x^
  void backward_weights(Adjacent weights, Matrix<const T> dy /*(R,N)*/, Matrix<const T> x /*(R,K)*/, Tensor1<const A> largest, double scale) {
    if (std::none_of(weights.begin(), weights.end(), [](const Parameter* w) { return w && w->trained; })) return;
    Scope scope(dev_.scratch);
    const auto values = dev_.scratch.named("ternary: dequantized rows").template tensor<T>(x.rows, x.columns);
    quantize_rows<T>(dev_, x, magnitudes_of(x, largest), Ternary::values, values);
    weights_backward<T>(dev_, weights, dy, Tensor2<const T>(values), scale);
  }

 private:
  Matrix<const T> weight() const { return {first_.template matrix<const T>().data(), sections_.rows(), first_.columns(), first_.columns()}; }

  void find_scales() {
    Scope scope(dev_.scratch);
    const auto sums = dev_.scratch.named("ternary: sums of |w|").template tensor<double>(sections_.count);
    magnitude_sums<T>(dev_, weight(), sections_, sums);
    const Device::Purpose purpose(dev_, "ternary layers: sums of magnitudes of weights");
    a_.holders(first_).full().all_reduce(dev_, sums);
    weight_scales<A>(dev_, sections_, sums, scales_);
  }

  Tensor2<T> quantized_weight(Ternary form) {
    const Matrix<const T> w = weight();
    const auto to = dev_.scratch.named("ternary: quantized weight").template tensor<T>(w.rows, w.columns);
    quantize_weight<T>(dev_, w, sections_, scales_, form, to);
    return to;
  }

  Tensor1<const A> magnitudes_of(Matrix<const T> x, Tensor1<const A> largest) {
    if (largest.extent(0) > 0) return largest;
    const auto own = dev_.scratch.named("ternary: magnitudes of rows").template tensor<A>(x.rows);
    row_magnitudes<T>(dev_, x, own);
    return own;
  }

  Pass& a_;
  Device& dev_;
  const Parameter& first_;
  RowSections sections_;
  Tensor1<A> scales_;
};

}  // namespace gyr
