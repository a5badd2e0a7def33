// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/convolution.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

template <class T>
void check(Index batch, const Matrix<const T>& x, const Tensor2<const Acc<T>>& w, const Tensor3<const T>& before) {
  const Index C = x.columns, K = w.extent(1);
  ensure(batch > 0 && x.rows % batch == 0 && Index(w.extent(0)) == C && K > 0 && K <= largest_conv_kernel,
         "convolution: {} sequences in x ({},{}) do not fit weights ({},{})", batch, x.rows, C, w.extent(0), K);
  ensure(!before.data() || (Index(before.extent(0)) == batch && Index(before.extent(1)) == K - 1 && Index(before.extent(2)) == C),
         "convolution: expected ({},{},{}) inputs before the first token, not ({},{},{})", batch, K - 1, C, before.extent(0), before.extent(1),
         before.extent(2));
}

}  // namespace

template <class T>
void convolution(Device& dev, Index batch, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor3<const T> before,
                 Matrix<T> y, const Documents& documents, ConvolutionEnd end) {
  check(batch, x, w, before);
  documents.check(x.rows);
  const Index C = x.columns, K = w.extent(1);
  const auto run = dev.launch("convolution", (2.0 * K + 4) * x.rows * C, 2.0 * sizeof(T) * x.rows * C);
  const Workspace workspace(dev.scratch, "convolution");
  backend::convolution<T>(dev, batch, x, w, bias, before, y, documents, end);
}

template <class T>
void convolution_backward(Device& dev, Index batch, Matrix<const T> dy, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                          Tensor3<const T> before, Matrix<T> dx, Tensor2<Acc<T>> dw, Tensor1<Acc<T>> dbias, Tensor3<T> dbefore,
                          const Documents& documents, ConvolutionEnd end) {
  check(batch, x, w, before);
  documents.check(x.rows);
  const Index C = x.columns, K = w.extent(1);
  const auto run = dev.launch("convolution_backward", (6.0 * K + 9) * x.rows * C, 3.0 * sizeof(T) * x.rows * C);
  const Workspace workspace(dev.scratch, "convolution_backward");
  backend::convolution_backward<T>(dev, batch, dy, x, w, bias, before, dx, dw, dbias, dbefore, documents, end);
}

template <class T>
void convolution_tail(Device& dev, Index batch, Matrix<const T> x, Tensor3<const T> before, Tensor3<T> after) {
  const Index C = x.columns, K = after.extent(1) + 1;
  if (const auto run = dev.launch("convolution_tail", 0, 2.0 * sizeof(T) * batch * (K - 1) * C))
    backend::convolution_tail<T>(dev, batch, x, before, after);
}

GYR_SCALARS(GYR_CONVOLUTION)

}  // namespace gyr
