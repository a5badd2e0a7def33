// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/fault_point.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>

namespace gyr {

void fault_point(std::string_view stage, int position, std::int64_t step) {
  const char* wanted = std::getenv("GYR_FAULT_POINT");
  if (!wanted) return;
  const std::string here = fmt::format("{}:{}", stage, position);
  if (wanted == here || wanted == fmt::format("{}:{}", here, step)) raise(SIGKILL);
}

}  // namespace gyr
