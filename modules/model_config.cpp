// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model_config.hpp"

#include "modules/layer.hpp"

namespace gyr {

void check(const ModelConfig& c) {
  const auto divides = [](Index part, Index whole, const char* what) {
    require(part > 0 && whole % part == 0, Exit::config, "model: {} ({} does not divide {})", what, part, whole);
  };
  require(!c.pattern.empty(), Exit::config, "model.pattern: there must be at least one layer");
  for (const char symbol : c.pattern) layer_type(symbol);
  divides(c.attention.key_heads, c.attention.heads, "attention.key_heads must divide attention.heads");
  require(c.attention.width % 2 == 0, Exit::config, "model.attention.width: rotary positions need an even head width, not {}",
          c.attention.width);
  divides(c.mamba.groups, c.mamba.heads, "mamba.groups must divide mamba.heads");
  require(c.mamba.dt_low <= c.mamba.dt_high, Exit::config, "model.mamba.dt_limit: {} is above {}", c.mamba.dt_low, c.mamba.dt_high);
}

}  // namespace gyr
