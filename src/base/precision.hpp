// SPDX-License-Identifier: BSD-3-Clause
// Maps the name of a precision to the element type of a model.
#pragma once

#include <string>

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

// Element type for "fp64", "bf16" or "fp32"; any other name also gives fp32.
inline DType precision_of(const std::string& name) { return name == "fp64" ? DType::f64 : name == "bf16" ? DType::bf16 : DType::f32; }

}  // namespace gyr
