// SPDX-License-Identifier: BSD-3-Clause
// The grid as a deck asks for it: keys parallel.*.
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

// How tensor ranks share the two mixers of hybrid blocks: each both, some one and others the other, or whichever computes less.
enum class Mixer { split, apart, automatic };
inline constexpr std::array<const char*, 3> mixer_names{"split", "apart", "auto"};

// Who decides how ranks share the work: the deck, or a search for what is fastest on the machine that a file describes.
enum class Planning { deck, automatic };

// Keys that a search decides, which a deck may keep from it (parallel.keep).
inline constexpr std::array<const char*, 13> searched_keys{"data",           "pipeline",         "context",      "tensor", "expert",
                                                           "virtual_stages", "schedule",         "context_mode", "mixer",  "sequence",
                                                           "shard",          "micro_batch_size", "recompute"};

struct ParallelConfig {
  Planning plan;
  std::string cluster, profile;         // files: of the machine, of its kernels' times
  std::vector<std::string> keep;        // searched keys that stay as the deck says
  int data, pipeline, context, tensor;  // data 0: whatever the ranks leave
  std::vector<Axis> order;              // of the axes, outermost first
  std::vector<int> permutation;
  Islands islands;  // by which ranks are ordered and stages are cut, where the deck does not say how; none: all ranks are alike
  bool sequence;    // tensor ranks keep shares of the residual stream
  Mixer mixer;
  int attention_ranks;        // where mixers are apart; 0: by cost
  Schedule one_chunk;         // of the pipeline, where virtual_stages is 1
  int virtual_stages;         // chunks of layers of each pipeline rank
  std::vector<Index> layers;  // per stage; empty: cut by cost
  ContextMode context_mode;
  int expert;          // ranks that deal experts among themselves
  double expert_room;  // for rows, in even shares; 0: for any routing
  Shard shard;         // what data ranks cut among themselves
  Index bucket_bytes;
  std::optional<DType> reduce_dtype;  // in which gradients travel over the data axis; none: in which they are added up

  int model_ranks() const { return pipeline * context * tensor; }        // that each index of the data axis takes
  int data_grain() const { return expert / std::gcd(expert, context); }  // the data axis is a multiple of it, so that experts can be dealt
  int least_ranks() const { return !islands.empty() ? ranks_of(islands) : model_ranks() * (data > 0 ? data : data_grain()); }
  int stages() const { return pipeline * virtual_stages; }
  Schedule schedule() const { return virtual_stages > 1 ? interleaved : one_chunk; }
};

ParallelConfig read_parallel(Section&);

}  // namespace gyr
