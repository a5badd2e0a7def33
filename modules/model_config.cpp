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
  divides(c.attention.num_kv_heads, c.attention.num_heads, "attention.num_kv_heads must divide attention.num_heads");
  require(c.attention.head_dim % 2 == 0, Exit::config, "model.attention.head_dim: rotary positions need an even head_dim, not {}",
          c.attention.head_dim);
  divides(c.mamba.num_groups, c.mamba.num_heads, "mamba.num_groups must divide mamba.num_heads");
  require(c.mamba.dt_low <= c.mamba.dt_high, Exit::config, "model.mamba.dt_limit: {} is above {}", c.mamba.dt_low, c.mamba.dt_high);
}

}  // namespace gyr
