// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/heuristic.hpp"

#include <algorithm>

namespace gyr {

RunConfig in_one_layout(RunConfig run) {
  run.policy->generation = {};
  for (FurtherModel& m : run.models) m.ranks = "all", m.data = m.pipeline = m.context = m.tensor = m.expert = 0;
  return run;
}

std::vector<std::string> lines_of_one_layout(const RunConfig& run) {
  std::vector<std::string> lines;
  const GenerationLayout& g = run.policy->generation;
  if (g.ranks != "all") lines.push_back("rl.generate.ranks=all");
  if (g.pipeline > 0) lines.push_back("rl.generate.pipeline=0");
  if (g.tensor > 0) lines.push_back("rl.generate.tensor=0");
  if (!g.precision.empty()) lines.push_back("rl.generate.precision=\"\"");
  for (const FurtherModel& m : run.models) {
    if (m.ranks != "all") lines.push_back(key_of_model(m.name, "ranks") + "=all");
    for (const auto& [key, size] :
         {std::pair("data", m.data), {"pipeline", m.pipeline}, {"context", m.context}, {"tensor", m.tensor}, {"expert", m.expert}})
      if (size > 0) lines.push_back(key_of_model(m.name, key) + "=0");
  }
  return lines;
}

std::vector<LayoutChoice> plain_layouts(const RunConfig& run, int ranks, const Cluster& cluster) {
  std::vector<LayoutChoice> sizes, all;
  LayoutChoice c;
  c.micro_batch_size = run.train.micro_batch_size;
  while (recompute_of(recompute_names[c.recompute]) != run.recompute.all) ++c.recompute;
  const int most = int(std::min<Index>(ranks, cluster.per_node));
  for (c.tensor = 1; c.tensor <= most; c.tensor *= 2) sizes.push_back(c);
  c.tensor /= 2;
  for (c.pipeline = 2; c.tensor * c.pipeline <= ranks; c.pipeline *= 2) sizes.push_back(c);
  // ZeRO-3 cannot generate with the weights of training. A sharded optimizer takes little time.
  std::vector<Shard> shards{run.parallel.shard};
  if (shards.front() == Shard::weights) shards = {Shard::optimizer};
  if (shards.front() == Shard::none) shards.push_back(Shard::optimizer);
  for (LayoutChoice& size : sizes) {
    if (ranks % (size.tensor * size.pipeline) != 0) continue;
    size.data = ranks / (size.tensor * size.pipeline);
    for (const Shard shard : shards) all.push_back(size), all.back().shard = shard;
  }
  return all;
}

}  // namespace gyr
