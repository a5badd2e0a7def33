// SPDX-License-Identifier: BSD-3-Clause
// Layers before the classification matrix of text classifiers: final norm, optional mean pooling, then BERT's pooler
// (linear layer and tanh) or the transform of masked-token heads.
#pragma once

#include "modules/layers/transform.hpp"
#include "modules/objectives/classes.hpp"
#include "modules/objectives/text_means.hpp"

namespace gyr {

// Input of the classification matrix, given the output h of the final norm: tanh(h w' + b) for every row, or the
// transform. With mean pooling, h is replaced by the mean over the rows of its text.
template <class T>
class TextFront {
 public:
  TextFront(const ModelConfig& c, Parameters& parameters) : last_(c, parameters), mean_(pool_of(*c.objective) == Pool::mean) {
    const ClassFront front = front_of(*c.objective);
    if (front == ClassFront::usual) pooler_.emplace(c, "pooler.dense", Activation::tanh, parameters);
    else transform_.emplace(c, "classifier", front == ClassFront::transform, parameters);
  }

  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> x) {
    Tensor2<T> h = last_.forward(a, frame, x);
    if (mean_) {
      const auto pooled = frame.put(mean, h.extent(0), h.extent(1));
      TextMeans<T>(a, frame).forward(h, pooled);
      h = pooled;
    }
    return pooler_ ? pooler_->forward(a, frame, h) : transform_->forward(a, frame, h);
  }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dx) {
    Scope scope(a.dev.scratch);
    Tensor2<T> dh = a.scratch<T>("gradient of the pooler input", Index(dx.extent(0)), Index(dx.extent(1)));
    if (pooler_) pooler_->backward(a, frame, dy, dh);
    else transform_->backward(a, frame, dy, dh);
    if (mean_) {
      const auto dmean = dh;
      dh = a.scratch<T>("gradient of the norm output", Index(dx.extent(0)), Index(dx.extent(1)));
      TextMeans<T>(a, frame).backward(dmean, dh);
    }
    last_.backward(a, frame, dh, dx);
  }

 private:
  static constexpr Key<Tensor2<T>> mean{"text means"};
  FinalNorm<T> last_;
  bool mean_;
  std::optional<Dense<T>> pooler_;
  std::optional<Transform<T>> transform_;
};

}  // namespace gyr
