// SPDX-License-Identifier: BSD-3-Clause
// Cost model of mixer parallelism (parallel.mixer): some tensor-parallel ranks compute the attention of hybrid blocks
// while the others compute their SSM. If all ranks compute both, KV heads and groups of B and C are replicated where
// they are fewer than the ranks.
#pragma once

#include <string>
#include <vector>

#include "modules/model/model_config.hpp"
#include "src/parallel/parallel_config.hpp"

namespace gyr {

// Forward FLOPs per token of the two mixers of a block, as executed, on a rank that computes them. Attention values are
// counted as full heads.
struct MixerSplit {
  int attention_ranks;    // number of ranks that compute attention only; 0: all ranks compute both mixers
  double attention, ssm;  // FLOPs per token on a rank that computes this mixer
  // FLOPs of the rank that computes most.
  double slowest() const { return attention_ranks == 0 ? attention + ssm : std::max(attention, ssm); }
};

MixerSplit both_mixers_on_all_ranks(const ModelConfig&, Index seq_length, int tensor_ranks);
// All splits for which heads and groups divide, in ascending order of attention ranks.
std::vector<MixerSplit> mixer_splits(const ModelConfig&, Index seq_length, int tensor_ranks);

// Number of attention ranks for a deck; 0 if all ranks compute both mixers, as with parallel.mixer = split. `apart`
// takes the valid division of the ranks whose busiest rank computes least. `auto` takes it only if it is cheaper than
// both mixers on all ranks, or if the mixers cannot be sharded over all ranks; it returns 0 if no division is valid.
// Exit::config if none is valid with `apart` or with the given parallel.attention_ranks.
int attention_ranks_of(const ParallelConfig&, const ModelConfig&, Index seq_length);

// Table of the splits for plans: FLOPs of the busiest rank, compared with both mixers on all ranks.
std::string mixer_table(const ModelConfig&, Index seq_length, int tensor_ranks, int chosen);

}  // namespace gyr
