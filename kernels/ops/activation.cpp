// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/activation.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

template <class T>
void ensure_shape(const char* kernel, Tensor2<const T> x, Index rows, Index columns) {
  ensure(Index(x.extent(0)) == rows && Index(x.extent(1)) == columns, "{}: a tensor has shape ({},{}), expected ({},{})", kernel, x.extent(0),
         x.extent(1), rows, columns);
}

}  // namespace

template <class T>
void glu(Device& dev, Activation a, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y) {
  const Index rows = y.extent(0), width = y.extent(1);
  ensure_shape<T>("glu", gate_up, rows, 2 * width);
  if (const auto run = dev.launch("glu", 6.0 * rows * width, 3.0 * sizeof(T) * rows * width)) backend::glu<T>(dev, a, gate_up, multiplier, y);
}

template <class T>
void glu_backward(Device& dev, Activation a, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up) {
  const Index rows = dy.extent(0), width = dy.extent(1);
  for (const auto& pair : {gate_up, Tensor2<const T>(dgate_up)}) ensure_shape<T>("glu_backward", pair, rows, 2 * width);
  if (const auto run = dev.launch("glu_backward", 12.0 * rows * width, 5.0 * sizeof(T) * rows * width))
    backend::glu_backward<T>(dev, a, dy, gate_up, multiplier, dgate_up);
}

template <class T>
void activate(Device& dev, Activation a, Tensor2<const T> x, double multiplier, Tensor2<T> y) {
  const Index rows = y.extent(0), width = y.extent(1);
  ensure_shape<T>("activate", x, rows, width);
  if (const auto run = dev.launch("activate", 5.0 * rows * width, 2.0 * sizeof(T) * rows * width)) backend::activate<T>(dev, a, x, multiplier, y);
}

template <class T>
void activate_backward(Device& dev, Activation a, Tensor2<const T> dy, Tensor2<const T> x, double multiplier, Tensor2<T> dx) {
  const Index rows = dy.extent(0), width = dy.extent(1);
  for (const auto& same : {x, Tensor2<const T>(dx)}) ensure_shape<T>("activate_backward", same, rows, width);
  if (const auto run = dev.launch("activate_backward", 9.0 * rows * width, 3.0 * sizeof(T) * rows * width))
    backend::activate_backward<T>(dev, a, dy, x, multiplier, dx);
}

GYR_SCALARS(GYR_ACTIVATION)

}  // namespace gyr
