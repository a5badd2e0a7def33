// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/parallel_config.hpp"

#include <algorithm>

#include "modules/model/model_config.hpp"
#include "src/base/limits.hpp"

namespace gyr {

namespace {

void read_experts(Section& s, ParallelConfig& c) {
  c.expert = s.get("expert", 1, "expert-parallel size: neighbouring data x context ranks that shard the experts of E layers; 1: every rank has all")
                 .positive()
                 .at_most(most_axis);
  c.expert_receive_capacity =
      s.get("expert_room", 0.0, "capacity of expert receive buffers, in multiples of balanced routing; exceeding it ends the run; 0: for any routing")
          .at_least(0)
          .at_most(most_axis);
}

void read_planning(Section& s, ParallelConfig& c) {
  c.plan = get_word(s, "plan", Planning::deck, {"deck", "auto"},
                    "source of layout, train.micro_batch_size and activation.recompute: the deck, or a search for the fastest layout that fits on "
                    "parallel.cluster (gyrfalcon plan --explain)");
  c.cluster = s.get("cluster", "",
                    "for plan = auto and activation.alpha = auto: file that describes the cluster, as written by gyrfalcon probe (examples: "
                    "input/clusters/)")
                  .value();
  c.profile =
      s.get("profile", "", "for plan = auto: file of kernel times, as written by gyrfalcon profile DECK --out FILE; empty: estimates").value();
  c.keep = s.get("keep", std::vector<std::string>{}, "for plan = auto: keys that the search must not change")
               .one_of({searched_keys.begin(), searched_keys.end()})
               .value();
}

void read_schedule(Section& s, ParallelConfig& c) {
  std::vector<std::string> names;
  for (const NamedSchedule& s : schedules) names.emplace_back(s.name);
  const std::string schedule =
      s.get("schedule", names.front(),
            "pipeline schedule: one forward, one backward (1f1b); all forwards first, which keeps every micro-batch (gpipe); or backwards split into "
            "input and weight gradients, the latter filling the bubble (zero_bubble: ZB-H1, activation memory of the first rank of 1f1b)")
          .one_of(names);
  c.one_chunk = std::find_if(schedules.begin(), schedules.end(), [&](const NamedSchedule& s) { return s.name == schedule; })->schedule;
  c.virtual_stages = s.get("virtual_stages", 1,
                           "virtual stages per pipeline rank (interleaved 1F1B): more of them shorten the bubble, but need more traffic and memory "
                           "(Megatron: --num-virtual-stages-per-pipeline-rank)")
                         .positive()
                         .at_most(most_layers);
  c.layers = s.get("layers", std::vector<Index>{}, "layers of each stage; stage s is on pipeline rank s mod parallel.pipeline; empty: split by cost")
                 .positive()
                 .at_most(most_layers)
                 .value();
}

// ZeRO level, bucket size and dtype of the gradient reduction.
void read_reduction(Section& s, ParallelConfig& c) {
  const std::string shard =
      s.get("shard", "none",
            "ZeRO level: data-parallel ranks shard optimizer states (ZeRO-1, Megatron: --use-distributed-optimizer), gradients too (ZeRO-2), "
            "weights too (ZeRO-3, FSDP)")
          .one_of({shard_names.begin(), shard_names.end()});
  c.shard = Shard(std::find(shard_names.begin(), shard_names.end(), shard) - shard_names.begin());
  c.bucket_bytes = Index(s.get("bucket", 32, "bucket size of the gradient reduction, and of the ZeRO-3 weight all-gather, over the data axis")
                             .unit("MiB")
                             .positive()
                             .at_most(1 << 20))
                   << 20;
  if (s.get("reduce_dtype", "full",
            "dtype of the gradient reduction over the data axis: that of accumulation (fp32 or fp64), or bf16, which halves the traffic, rounds, and "
            "needs a buffer (Megatron: --grad-reduce-in-bf16)")
          .one_of({"full", "bf16"})
          .effect(Effect::course)
          .value() == "bf16")
    c.reduce_dtype = DType::bf16;
}

}  // namespace

ParallelConfig read_parallel(Section& s) {
  ParallelConfig c;
  read_planning(s, c);
  c.data = s.get("data", 0, "data-parallel size; 0: all ranks that the other axes leave").at_least(0).at_most(most_ranks);
  c.pipeline = s.get("pipeline", 1, "pipeline-parallel size").positive().at_most(most_axis);
  c.context = s.get("context", 1, "context-parallel size: ranks that share the tokens of each sequence").positive().at_most(most_axis);
  const std::string mode = s.get("context_mode", "ring",
                                 "context parallelism of attention: ring attention, tokens in zigzag order (ring); all-to-all between heads and "
                                 "tokens, Ulysses (heads); or load-balanced, DistFlashAttention (balanced). Megatron: --cp-comm-type")
                               .one_of({context_mode_names.begin(), context_mode_names.end()});
  c.context_mode = ContextMode(std::find(context_mode_names.begin(), context_mode_names.end(), mode) - context_mode_names.begin());
  c.tensor = s.get("tensor", 1, "tensor-parallel size").positive().at_most(most_axis);
  c.order = axis_order(s.get("order", default_axis_order(), "axes, outermost first: neighbours along the last axis have neighbouring ranks").value());
  const std::vector<Index> permutation =
      s.get("permutation", std::vector<Index>{}, "rank at each position of the grid; empty: in order").at_least(0).at_most(most_ranks);
  c.permutation.assign(permutation.begin(), permutation.end());
  c.sequence = s.get("sequence", false, "sequence parallelism: tensor-parallel ranks keep shards of the residual stream; saves memory");
  const std::string mixer =
      s.get("mixer", "split",
            "mixers (attention, SSM) of P blocks on the tensor-parallel ranks: each rank computes a part of both (split); some ranks the attention, "
            "the others the SSM (apart); or the one that is faster on the slowest rank (auto)")
          .one_of({mixer_names.begin(), mixer_names.end()});
  c.mixer = Mixer(std::find(mixer_names.begin(), mixer_names.end(), mixer) - mixer_names.begin());
  c.attention_ranks = s.get("attention_ranks", 0, "for mixer = apart: number of tensor ranks that compute the attention, the first ones; 0: by cost")
                          .at_least(0)
                          .at_most(most_axis);
  read_schedule(s, c);
  read_experts(s, c);
  read_reduction(s, c);
  return c;
}

}  // namespace gyr
