// SPDX-License-Identifier: BSD-3-Clause
// From the name of a precision in a deck to the scalar of a template.
#pragma once

#include <string>
#include <type_traits>

#include "kernels/scalar.hpp"

namespace gyr {

// Calls f(std::type_identity<T>()) with the scalar that "fp64", "bf16" or "fp32" names.
template <class F>
decltype(auto) with_scalar(const std::string& precision, F&& f) {
  if (precision == "fp64") return f(std::type_identity<double>());
  if (precision == "bf16") return f(std::type_identity<bf16>());
  return f(std::type_identity<float>());
}

}  // namespace gyr
