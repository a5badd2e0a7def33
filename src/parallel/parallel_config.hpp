// SPDX-License-Identifier: BSD-3-Clause
// Settings of the rank grid: deck keys parallel.*.
#pragma once

#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "modules/pass/sequence_layout.hpp"
#include "modules/settings/settings.hpp"
#include "modules/weights/shard.hpp"
#include "src/parallel/islands.hpp"
#include "src/parallel/schedule.hpp"

namespace gyr {

// How tensor-parallel ranks compute the two mixers of hybrid blocks: each rank a part of both (split), each rank one of
// them (separate), or the cheaper of these (automatic).
enum class Mixer { split, separate, automatic };
inline constexpr std::array<const char*, 3> mixer_names{"split", "apart", "auto"};

// Source of the parallel layout: the deck, or a search for the fastest layout on the cluster that a file describes.
enum class Planning { deck, automatic };

// Keys that the layout search decides, unless parallel.keep lists them.
inline constexpr std::array<const char*, 13> searched_keys{"data",           "pipeline",         "context",      "tensor", "expert",
                                                           "virtual_stages", "schedule",         "context_mode", "mixer",  "sequence",
                                                           "shard",          "micro_batch_size", "recompute"};

struct ParallelConfig {
  Planning plan;
  std::string cluster, profile;         // paths: cluster description; measured kernel times
  std::vector<std::string> keep;        // keys that keep their value in the deck when a search decides the others
  int data, pipeline, context, tensor;  // sizes of the axes in ranks; data 0: all ranks that the other axes leave
  std::vector<Axis> order;              // order of the axes, outermost first
  std::vector<int> permutation;
  // Islands of the cluster (sets of nodes with the same device type); they set rank order and stage sizes if the deck
  // does not; empty: all ranks are alike.
  Islands islands;
  bool sequence;  // sequence parallel: tensor-parallel ranks keep shards of the residual stream
  Mixer mixer;
  int attention_ranks;        // tensor ranks that compute attention if mixers are separate; 0: chosen by cost
  Schedule one_chunk;         // pipeline schedule if virtual_stages is 1
  int virtual_stages;         // number of chunks (virtual stages) per pipeline rank
  std::vector<Index> layers;  // number of layers of each stage; empty: split by cost
  ContextMode context_mode;
  int expert;                      // expert-parallel size: number of ranks that shard the experts
  double expert_receive_capacity;  // capacity of expert receive buffers, in multiples of balanced routing; 0: for any routing
  Shard shard;                     // ZeRO level over the data-parallel ranks
  Index bucket_bytes;
  std::optional<DType> reduce_dtype;  // dtype of gradients in the reduction over the data axis; empty: dtype of accumulation

  int model_ranks() const { return pipeline * context * tensor; }        // number of ranks for each index of the data axis
  int data_grain() const { return expert / std::gcd(expert, context); }  // the data axis must be a multiple of this, so that experts can be sharded
  int least_ranks() const { return !islands.empty() ? ranks_of(islands) : model_ranks() * (data > 0 ? data : data_grain()); }
  int stages() const { return pipeline * virtual_stages; }
  Schedule schedule() const { return virtual_stages > 1 ? interleaved : one_chunk; }
};

ParallelConfig read_parallel(Section&);

}  // namespace gyr
