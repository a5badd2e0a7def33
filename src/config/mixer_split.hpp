// SPDX-License-Identifier: BSD-3-Clause
// Mixer parallelism in numbers: which shares of the tensor ranks can compute the attention of hybrid blocks while the others compute their SSM, and
// what that saves. All ranks computing both repeat what cannot be dealt: key heads that are fewer than the ranks, and groups of B and C.
#pragma once

#include <string>
#include <vector>

#include "modules/model/model_config.hpp"
#include "src/parallel/parallel_config.hpp"

namespace gyr {

// Forward flops of a token in the two mixers of a block, as executed, on a rank that computes them; attention's values counted as whole heads.
struct MixerSplit {
  int attention_ranks;    // 0: all ranks compute both
  double attention, ssm;  // on a rank that has a part in it
  // Of the rank that computes most.
  double slowest() const { return attention_ranks == 0 ? attention + ssm : std::max(attention, ssm); }
};

MixerSplit shared_by_all(const ModelConfig&, Index seq_length, int tensor_ranks);
// Every share that heads and groups can be dealt over, by rising number of attention ranks.
std::vector<MixerSplit> shares_apart(const ModelConfig&, Index seq_length, int tensor_ranks);

// The attention ranks that a deck asks for, 0 where all ranks compute both. Of those that would do, the one whose dearest rank computes least; with
// `auto` only where that is less than all ranks computing both, or these cannot. Exit::config where nothing would do.
int attention_ranks_of(const ParallelConfig&, const ModelConfig&, Index seq_length);

// The shares as a table, for plans: what the dearest rank computes, beside all ranks computing both.
std::string mixer_table(const ModelConfig&, Index seq_length, int tensor_ranks, int chosen);

}  // namespace gyr
