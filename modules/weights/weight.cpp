// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/weight.hpp"

#include <algorithm>
#include <cmath>

namespace gyr {

double draw(const Init& init, const Stream& stream, Index i) {
  switch (init.kind) {
    case Init::constant: return init.a;
    case Init::normal: return init.a + init.b * stream.normal(i);
    case Init::uniform: return init.a + (init.b - init.a) * stream.uniform(i);
    case Init::log_of_uniform: return std::log(init.a + (init.b - init.a) * stream.uniform(i));
    case Init::step_bias: {
      const double dt = std::max(1e-4, std::exp(std::log(init.a) + (std::log(init.b) - std::log(init.a)) * stream.uniform(i)));
      return dt + std::log(-std::expm1(-dt));
    }
  }
  return 0;
}

}  // namespace gyr
