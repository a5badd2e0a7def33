// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/mixer_keys.hpp"

#include <cmath>

namespace gyr {

void read_mixer(ConfigReader& r, const MixerKeys& keys) {
  MambaConfig& m = r.config.model.mamba;
  m.num_heads = r.size(keys.num_heads, m.num_heads);
  if (r.value(keys.head_dim) != "auto") m.head_dim = r.size(keys.head_dim, m.head_dim);
  r.demand(m.num_heads <= widest / m.head_dim, keys.num_heads, "times {} is {} times {}; the maximum is {}", keys.head_dim, m.num_heads, m.head_dim,
           widest);
  m.num_groups = r.size(keys.num_groups, m.num_groups);
  m.state_size = r.size(keys.state_size, m.state_size);
  r.demand(m.num_groups <= widest / m.state_size, keys.num_groups, "times {} is {} times {}; the maximum is {}", keys.state_size, m.num_groups,
           m.state_size, widest);
  m.conv_kernel = r.integer(keys.conv_kernel, m.conv_kernel, 2, 16);
  m.chunk_size = r.size(keys.chunk_size, m.chunk_size);
  m.conv_bias = r.flag(keys.conv_bias, true);
  m.in_bias = m.out_bias = r.flag(keys.bias, false);
  m.norm = SsmNorm::gate_first;
}

void write_mixer(const MambaConfig& m, const MixerKeys& keys, nlohmann::ordered_json& j) {
  j[keys.num_heads] = m.num_heads;
  j[keys.head_dim] = m.head_dim;
  j[keys.num_groups] = m.num_groups;
  j[keys.state_size] = m.state_size;
  j[keys.conv_kernel] = m.conv_kernel;
  j[keys.chunk_size] = m.chunk_size;
  j[keys.conv_bias] = m.conv_bias;
  j[keys.bias] = m.in_bias;
}

void write_time_step_limit(const MambaConfig& m, nlohmann::ordered_json& j) {
  if (m.dt_low != 0 || std::isfinite(m.dt_high)) j["time_step_limit"] = {spelled(m.dt_low), spelled(m.dt_high)};
}

}  // namespace gyr
