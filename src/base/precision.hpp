// SPDX-License-Identifier: BSD-3-Clause
// From the name of a precision to the type of a model's numbers.
#pragma once

#include <string>

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

// What "fp64", "bf16" or "fp32" names.
inline DType precision_of(const std::string& name) { return name == "fp64" ? DType::f64 : name == "bf16" ? DType::bf16 : DType::f32; }

}  // namespace gyr
