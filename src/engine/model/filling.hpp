// SPDX-License-Identifier: BSD-3-Clause
// Loading of weights into a model for inference.
#pragma once

#include "modules/weights/parameter.hpp"

namespace gyr {

// While it exists, weights may be loaded: fill one after the other, and call arrived() when one is complete. A weight in
// int8 is filled in memory that all of them share, and then quantized. The parameters must outlive it.
class Filling {
 public:
  explicit Filling(Parameters& parameters) : parameters_(parameters), dev_(false, parameters.largest_int8_weight() * size_of(parameters.dtype())) {
    parameters_.load_into(take(dev_.scratch, parameters_.dtype(), parameters_.largest_int8_weight()));
  }
  ~Filling() { parameters_.load_into({}); }
  Filling(const Filling&) = delete;
  Filling& operator=(const Filling&) = delete;

  ParameterList weights() const { return parameters_.all(); }
  Arrived arrived() {
    return [this](const Parameter& p) {
      if (parameters_.in_int8(p)) parameters_.quantize_loaded(dev_, p);
    };
  }

 private:
  Parameters& parameters_;
  Device dev_;
};

}  // namespace gyr
