// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/mixer_split.hpp"

#include <algorithm>
#include <numeric>

#include "modules/layers/attention.hpp"
#include "modules/layers/mamba.hpp"
#include "modules/objectives/objective.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"

namespace gyr {

namespace {

bool heads_can_shard(Index units, Index ranks) { return units % ranks == 0 || ranks % units == 0; }
Index on_a_rank(Index units, Index ranks) { return std::max<Index>(1, units / ranks); }

bool attention_fits(const AttentionConfig& c, int ranks) { return heads_can_shard(c.num_heads, ranks) && heads_can_shard(c.num_kv_heads, ranks); }
bool ssm_fits(const MambaConfig& c, int ranks) {
  return heads_can_shard(c.num_heads, ranks) && heads_can_shard(c.num_groups, ranks) &&
         on_a_rank(c.num_heads, ranks) % on_a_rank(c.num_groups, ranks) == 0;
}

double executed(const LayerFlops& f) { return f.gemms + f.attention + f.scan + f.convolution; }

double attention_on(ModelConfig m, Index seq_length, int ranks) {
  AttentionConfig& c = m.attention;
  c.num_heads = on_a_rank(c.num_heads, ranks), c.num_kv_heads = on_a_rank(c.num_kv_heads, ranks);
  return executed(attention_flops(m, seq_length));
}

// If there are more ranks than heads, each rank has some channels of one head.
double ssm_on(ModelConfig m, Index seq_length, int ranks) {
  MambaConfig& c = m.mamba;
  if (c.num_heads < ranks) c.head_dim /= std::gcd(c.head_dim, ranks / c.num_heads);
  c.num_heads = on_a_rank(c.num_heads, ranks), c.num_groups = on_a_rank(c.num_groups, ranks);
  return executed(mamba_flops(m, seq_length));
}

std::string list_of(const std::vector<MixerSplit>& splits) {
  std::string text;
  for (const MixerSplit& mixer_split : splits) text += fmt::format("{}{}", text.empty() ? "" : ", ", mixer_split.attention_ranks);
  return text;
}

}  // namespace

MixerSplit both_mixers_on_all_ranks(const ModelConfig& m, Index seq_length, int tensor_ranks) {
  return {0, attention_on(m, seq_length, tensor_ranks), ssm_on(m, seq_length, tensor_ranks)};
}

std::vector<MixerSplit> mixer_splits(const ModelConfig& m, Index seq_length, int tensor_ranks) {
  std::vector<MixerSplit> splits;
  for (int n = 1; n < tensor_ranks; ++n)
    if (attention_fits(m.attention, n) && ssm_fits(m.mamba, tensor_ranks - n))
      splits.push_back({n, attention_on(m, seq_length, n), ssm_on(m, seq_length, tensor_ranks - n)});
  return splits;
}

int attention_ranks_of(const ParallelConfig& p, const ModelConfig& m, Index seq_length) {
  require(
      p.attention_ranks == 0 || (p.mixer != Mixer::split && p.tensor > 1), Exit::config,
      "parallel.attention_ranks = {} applies only if the mixers are apart; set parallel.mixer to apart or auto and parallel.tensor to 2 or more, or "
      "leave it 0",
      p.attention_ranks);
  if (p.mixer == Mixer::split) return 0;
  const bool must = p.mixer == Mixer::separate, hybrid = has_layer(all_layers(m), &LayerTraits::without_mixers);
  require(!must || hybrid, Exit::config, "parallel.mixer = apart is for blocks that have both mixers, and model.pattern has no P; set it to split");
  require(!must || p.tensor > 1, Exit::config,
          "parallel.mixer = apart gives attention and SSM to different tensor-parallel ranks, and there is one; set parallel.tensor to 2 or more, or "
          "parallel.mixer to split");
  if (!hybrid || p.tensor == 1) return 0;
  const std::vector<MixerSplit> possible = mixer_splits(m, seq_length, p.tensor);
  std::vector<MixerSplit> splits = possible;
  if (p.attention_ranks > 0) std::erase_if(splits, [&](const MixerSplit& mixer_split) { return mixer_split.attention_ranks != p.attention_ranks; });
  require(p.attention_ranks < p.tensor, Exit::config,
          "parallel.attention_ranks = {} leaves none of parallel.tensor = {} ranks for the SSM; set it to {} or less, or to 0 to have it chosen",
          p.attention_ranks, p.tensor, p.tensor - 1);
  if (splits.empty()) {
    require(!must && p.attention_ranks == 0, Exit::config,
            "parallel.attention_ranks = {} of parallel.tensor = {}: {} attention heads, {} KV heads, {} SSM heads and {} SSM groups must divide, "
            "or be divided by, the ranks that compute them; {}",
            p.attention_ranks, p.tensor, m.attention.num_heads, m.attention.num_kv_heads, m.mamba.num_heads, m.mamba.num_groups,
            possible.empty() ? std::string("no number of attention ranks is valid: set parallel.mixer to split, or parallel.tensor to another number")
                             : "valid numbers: " + list_of(possible));
    return 0;
  }
  const auto cheaper = [](const MixerSplit& a, const MixerSplit& b) { return a.slowest() < b.slowest(); };
  const MixerSplit best = *std::min_element(splits.begin(), splits.end(), cheaper);
  const bool can_split = attention_fits(m.attention, p.tensor) && ssm_fits(m.mamba, p.tensor);
  return must || !can_split || cheaper(best, both_mixers_on_all_ranks(m, seq_length, p.tensor)) ? best.attention_ranks : 0;
}

std::string mixer_table(const ModelConfig& m, Index seq_length, int tensor_ranks, int chosen) {
  const MixerSplit joint = both_mixers_on_all_ranks(m, seq_length, tensor_ranks);
  Table table({{"mixers"}, {"attention", true}, {"SSM", true}, {"busiest rank", true}, {"ratio to split", true}});
  const auto row = [&](const MixerSplit& mixer_split) {
    std::string name = mixer_split.attention_ranks == 0
                           ? "split"
                           : fmt::format("{} attention, {} SSM", mixer_split.attention_ranks, tensor_ranks - mixer_split.attention_ranks);
    if (mixer_split.attention_ranks == chosen) name += " (this deck)";
    const auto flops = [](double value) { return metric_text(value, "FLOP", 4); };
    table.row({name, flops(mixer_split.attention), flops(mixer_split.ssm), flops(mixer_split.slowest()),
               fmt::format("{:.3f}", mixer_split.slowest() / joint.slowest())});
  };
  if (attention_fits(m.attention, tensor_ranks) && ssm_fits(m.mamba, tensor_ranks)) row(joint);
  for (const MixerSplit& mixer_split : mixer_splits(m, seq_length, tensor_ranks)) row(mixer_split);
  return table.str();
}

}  // namespace gyr
