// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/swiglu.hpp"

#include "kernels/backend.hpp"
#include "kernels/instances.hpp"

namespace gyr {

template <class T>
void swiglu(Device& dev, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y) {
  const Index rows = y.extent(0), width = y.extent(1);
  ensure(Index(gate_up.extent(0)) == rows && Index(gate_up.extent(1)) == 2 * width, "swiglu of ({},{}) into ({},{})", gate_up.extent(0),
         gate_up.extent(1), rows, width);
  if (const auto run = dev.launch("swiglu", 6.0 * rows * width, 3.0 * sizeof(T) * rows * width)) backend::swiglu<T>(dev, gate_up, multiplier, y);
}

template <class T>
void swiglu_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up) {
  const Index rows = dy.extent(0), width = dy.extent(1);
  for (const auto& pair : {gate_up, Tensor2<const T>(dgate_up)})
    ensure(Index(pair.extent(0)) == rows && Index(pair.extent(1)) == 2 * width, "swiglu_backward of ({},{}) with ({},{})", rows, width,
           pair.extent(0), pair.extent(1));
  if (const auto run = dev.launch("swiglu_backward", 12.0 * rows * width, 5.0 * sizeof(T) * rows * width))
    backend::swiglu_backward<T>(dev, dy, gate_up, multiplier, dgate_up);
}

GYR_SCALARS(GYR_SWIGLU)

}  // namespace gyr
