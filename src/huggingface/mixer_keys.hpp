// SPDX-License-Identifier: BSD-3-Clause
// Keys of the Mamba-2 mixer in config.json. Each family has its own names for the same settings.
#pragma once

#include "src/huggingface/config_reader.hpp"

namespace gyr {

struct MixerKeys {
  // bias: bias of both the input and the output projection
  const char *num_heads, *head_dim, *num_groups, *state_size, *conv_kernel, *chunk_size, *conv_bias, *bias;
};

// Reads into reader.config.model.mamba, whose current values are the defaults. A head_dim of "auto" is the default. The
// gate is applied before the norm (SsmNorm::gate_first).
void read_mixer(ConfigReader&, const MixerKeys&);
void write_mixer(const MambaConfig&, const MixerKeys&, nlohmann::ordered_json&);

// Writes time_step_limit only if it limits something: all versions of transformers default to no limit.
void write_time_step_limit(const MambaConfig&, nlohmann::ordered_json&);

}  // namespace gyr
