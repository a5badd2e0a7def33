// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/parallel_config.hpp"

#include <algorithm>

#include "modules/model/model_config.hpp"
#include "src/base/limits.hpp"

namespace gyr {

namespace {

void read_experts(Section& s, ParallelConfig& c) {
  c.expert = s.get("expert", 1, "neighbours among the data x context ranks that deal the experts of E layers among themselves; 1: every rank has all")
                 .positive()
                 .at_most(most_axis);
  c.expert_room =
      s.get("expert_room", 0.0, "rows that such a rank has memory for, in shares of an even routing; more of them end the run; 0: for any routing")
          .at_least(0)
          .at_most(most_axis);
}

void read_planning(Section& s, ParallelConfig& c) {
  c.plan = get_word(s, "plan", Planning::deck, {"deck", "auto"},
                    "who decides about the grid, train.micro_batch_size and activation.recompute: the deck, or a search for the fastest that fits on "
                    "parallel.cluster (gyrfalcon plan --explain)");
  c.cluster =
      s.get("cluster", "",
            "with auto, and for activation.alpha = auto: file that describes the machine, as gyrfalcon probe writes one and input/clusters/ has "
            "some")
          .value();
  c.profile =
      s.get("profile", "", "the same: times of its kernels, as gyrfalcon profile DECK --out FILE writes them; none: by the description").value();
  c.keep = s.get("keep", std::vector<std::string>{}, "of what a search decides, the keys that stay as they are here")
               .one_of({searched_keys.begin(), searched_keys.end()})
               .value();
}

}  // namespace

ParallelConfig read_parallel(Section& s) {
  ParallelConfig c;
  read_planning(s, c);
  c.data = s.get("data", 0, "ranks of the data axis; 0: as many as the other axes leave").at_least(0).at_most(most_ranks);
  c.pipeline = s.get("pipeline", 1, "ranks of the pipeline axis").positive().at_most(most_axis);
  c.context = s.get("context", 1, "ranks of the context axis, which share the tokens of each sequence").positive().at_most(most_axis);
  const std::string mode = s.get("context_mode", "ring",
                                 "how attention meets tokens of other ranks: their keys and values go round, the tokens in zigzag order; all-to-alls "
                                 "exchange heads against tokens; or ranks whose tokens see few keys help the others (balanced)")
                               .one_of({context_mode_names.begin(), context_mode_names.end()});
  c.context_mode = ContextMode(std::find(context_mode_names.begin(), context_mode_names.end(), mode) - context_mode_names.begin());
  c.tensor = s.get("tensor", 1, "ranks of the tensor axis").positive().at_most(most_axis);
  c.order = axis_order(s.get("order", default_axis_order(), "the axes, outermost first: neighbours along the last are neighbours in rank").value());
  const std::vector<Index> permutation =
      s.get("permutation", std::vector<Index>{}, "rank at each position of the grid; none: in order").at_least(0).at_most(most_ranks);
  c.permutation.assign(permutation.begin(), permutation.end());
  c.sequence = s.get("sequence", false, "tensor ranks keep shares of the residual stream: memory for a little more traffic (sequence parallelism)");
  const std::string mixer =
      s.get("mixer", "split",
            "tensor ranks and the two mixers of a P block: each rank computes a part of both; some the attention, the others the SSM (apart); or "
            "whichever has the dearest rank compute less (auto)")
          .one_of({mixer_names.begin(), mixer_names.end()});
  c.mixer = Mixer(std::find(mixer_names.begin(), mixer_names.end(), mixer) - mixer_names.begin());
  c.attention_ranks = s.get("attention_ranks", 0, "tensor ranks that compute the attention where mixers are apart, the first ones; 0: by cost")
                          .at_least(0)
                          .at_most(most_axis);
  std::vector<std::string> names;
  for (const NamedSchedule& s : schedules) names.emplace_back(s.name);
  const std::string schedule =
      s.get("schedule", names.front(),
            "order of work in the pipeline: one forward, one backward; all forwards first (keeps every micro-batch); or backwards split into "
            "gradients "
            "of inputs and of weights, the latter left for when a rank would wait (ZB-H1: every rank keeps what the first keeps of 1f1b)")
          .one_of(names);
  c.one_chunk = std::find_if(schedules.begin(), schedules.end(), [&](const NamedSchedule& s) { return s.name == schedule; })->schedule;
  c.virtual_stages =
      s.get("virtual_stages", 1, "stages of each pipeline rank, interleaved (1F1B): the more, the shorter it waits, and the more it sends and keeps")
          .positive()
          .at_most(most_layers);
  c.layers = s.get("layers", std::vector<Index>{}, "layers of each stage, of which rank r has the r-th of each round; none: cut by cost")
                 .positive()
                 .at_most(most_layers)
                 .value();
  read_experts(s, c);
  const std::string shard =
      s.get("shard", "none", "what data ranks cut among themselves: optimizer states; their gradients too; their weights too (ZeRO 1 to 3)")
          .one_of({shard_names.begin(), shard_names.end()});
  c.shard = Shard(std::find(shard_names.begin(), shard_names.end(), shard) - shard_names.begin());
  c.bucket_bytes =
      Index(s.get("bucket", 32, "gradients reduced, and weights gathered, together over the data axis").unit("MiB").positive().at_most(1 << 20))
      << 20;
  if (s.get("reduce_dtype", "full",
            "in which gradients travel over the data axis: as they are added up (fp32, or fp64), or in half the bytes, rounded, from memory beside "
            "them")
          .one_of({"full", "bf16"})
          .effect(Effect::course)
          .value() == "bf16")
    c.reduce_dtype = DType::bf16;
  return c;
}

}  // namespace gyr
