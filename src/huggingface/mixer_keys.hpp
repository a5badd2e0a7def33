// SPDX-License-Identifier: BSD-3-Clause
// The Mamba-2 mixer in config.json: the same settings under the names that a family has for them.
#pragma once

#include "src/huggingface/config_reader.hpp"

namespace gyr {

struct MixerKeys {
  const char *num_heads, *head_dim, *num_groups, *state_size, *conv_kernel, *chunk_size, *conv_bias, *bias;  // bias: of both projections
};

// Into reader.config.model.mamba, whose values hold where the file says nothing; the gate comes before the norm.
void read_mixer(ConfigReader&, const MixerKeys&);
void write_mixer(const MambaConfig&, const MixerKeys&, nlohmann::ordered_json&);

// time_step_limit where it limits something: no limit is every version's default.
void write_time_step_limit(const MambaConfig&, nlohmann::ordered_json&);

}  // namespace gyr
