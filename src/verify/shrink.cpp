// SPDX-License-Identifier: BSD-3-Clause
#include "src/verify/shrink.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "modules/cost/flops.hpp"
#include "modules/objectives/objective.hpp"
#include "modules/settings/weight_pattern.hpp"
#include "src/base/table.hpp"

namespace gyr {

namespace {

constexpr Index width = 24, head_width = 4, states = 6, inner_channels = 8, vocabulary = 32, block_of_tokens = 6;
constexpr Index small_bucket = 256;

// Smallest n >= `least` for which suits(n) is true, or `most` if there is none below it.
template <class Suits>
Index smallest(Index least, Index most, Suits&& suits) {
  for (Index n = std::max<Index>(1, least); n < most; ++n)
    if (suits(n)) return n;
  return most;
}

// 0, 1, or 2 for any larger number.
Index one_or_several(Index n) { return std::min<Index>(n, 2); }

// Distribution of `units` over `ranks`: number of ranks with the same unit, units per rank (0, 1, or 2 for several),
// and 1 if it is even.
std::vector<Index> distributed(Index units, Index ranks) {
  return {units < ranks ? ranks / units : 1, one_or_several(units / ranks), Index(units % ranks == 0 || ranks % units == 0)};
}

Index on_a_rank(Index units, Index ranks) { return std::max<Index>(1, units / ranks); }

// Rank counts over which heads are distributed: in hybrid blocks whose attention and SSM run on separate
// tensor-parallel ranks, the count of the ranks of this mixer (`team`); in all other layers, the tensor-parallel size.
using Counts = std::vector<Index>;
template <class Mixes>
Counts distributed_over(const std::string& pattern, const Mixes& mixes, const Span& team, const Layout& layout) {
  Counts counts;
  if (team.size() > 0 && has_layer(pattern, &LayerTraits::without_mixers)) counts.push_back(team.size());
  const auto single_mixer = [&](const LayerTraits& t) { return !t.without_mixers && mixes(t); };
  if (counts.empty() || has_layer(pattern, single_mixer)) counts.push_back(layout.size(Axis::tensor));
  return counts;
}
Counts attention_over(const ModelConfig& m, const Layout& layout) {
  const auto attention = [](const LayerTraits& t) { return t.attention == AttentionKind::full || t.attention == AttentionKind::window; };
  return distributed_over(all_layers(m), attention, layout.mixers().attention, layout);
}
Counts ssm_over(const ModelConfig& m, const Layout& layout) {
  return distributed_over(
      all_layers(m), [](const LayerTraits& t) { return t.ssm; }, layout.mixers().ssm, layout);
}

// How query and key heads (or SSM heads and groups) are distributed over tensor-parallel ranks, and a rank's heads over
// the context axis.
std::vector<Index> head_divisibility(Index heads, Index shared, Index tensor, Index context) {
  const Index here = on_a_rank(heads, tensor), shared_here = on_a_rank(shared, tensor);
  std::vector<Index> divisibility = distributed(heads, tensor);
  for (const Index x : distributed(shared, tensor)) divisibility.push_back(x);
  for (const Index x : {one_or_several(heads / shared), one_or_several(here / shared_here), here % shared_here}) divisibility.push_back(x);
  if (context > 1)
    for (const Index x : {here % context, one_or_several(here / context), shared_here % context, context % shared_here,
                          one_or_several(shared_here / context), shared_here < context ? context / shared_here : 1})
      divisibility.push_back(x);
  return divisibility;
}

std::vector<Index> head_divisibility(Index heads, Index shared, const Counts& over, const Layout& layout) {
  std::vector<Index> divisibility;
  for (const Index ranks : over)
    for (const Index x : head_divisibility(heads, shared, ranks, layout.size(Axis::context))) divisibility.push_back(x);
  return divisibility;
}

// Divisibility of a head's channels, if several ranks share one head.
std::vector<Index> channel_divisibility(Index channels, Index heads, Index tensor) {
  const Index ranks = heads < tensor ? tensor / heads : 1;
  return {std::gcd(channels, ranks), one_or_several(channels / std::gcd(channels, ranks)), channels % 2};
}

std::vector<Index> channel_divisibility(Index channels, Index heads, const Counts& over) {
  std::vector<Index> divisibility;
  for (const Index ranks : over)
    for (const Index x : channel_divisibility(channels, heads, ranks)) divisibility.push_back(x);
  return divisibility;
}

// Rows distributed as evenly as possible: the remainder, and the number of ranks without rows.
std::vector<Index> row_divisibility(Index rows, Index ranks) {
  const Index each = (rows + ranks - 1) / ranks;
  return {rows % ranks, ranks - (rows + each - 1) / each};
}

// Token counts: padding at the end, one or several sequences, remainder of the rows over the tensor axis, and 1 if a
// block of tokens covers the convolution kernel.
std::vector<Index> sequence_divisibility(const Layout& layout, Index batch, Index length, Index conv_kernel) {
  const SequenceLayout s = layout.sequences(0, batch, length);
  const Index padding = s.shared() ? s.ranks * s.seq_length - s.full_tokens : 0;
  return {padding, one_or_several(batch), s.rows() % layout.size(Axis::tensor), Index(s.block_length() >= conv_kernel)};
}

// Number of SSD chunks in a block of tokens (3 for more), and 1 if they divide the block evenly.
std::vector<Index> chunk_divisibility(const Layout& layout, Index length, Index chunk) {
  const Index block = layout.sequences(0, 1, length).block_length(), size = std::min(chunk, block);
  return {std::min<Index>(block / size, 3), Index(block % size == 0)};
}

// Chunks of layers R: those in a block of tokens (2 for more), and 1 if they divide it. Empty without such layers.
std::vector<Index> retrieval_divisibility(const RunConfig& run, const Layout& layout) {
  if (!reads_neighbours(run.model)) return {};
  const Index block = layout.sequences(0, 1, run.train.seq_length).block_length(), chunk = run.model.retrieval.chunk;
  return {std::min<Index>(block / chunk, 2), Index(block % chunk == 0)};
}

// Attention window: 1 if it is shorter than the sequence, 1 if it exceeds one token, and the number of token blocks
// before its own that it covers.
std::vector<Index> window_divisibility(const Layout& layout, Index length, Index window) {
  const SequenceLayout s = layout.sequences(0, 1, length);
  return {Index(window < length), Index(window > 1), std::min((window - 1 + s.block_length() - 1) / s.block_length(), s.ranks * s.blocks())};
}

// Micro-batches of a rank relative to the number of its pipeline stages.
std::vector<Index> micro_batch_divisibility(Index micros, Index pipeline) {
  return {micros % pipeline, std::min(micros, 2 * pipeline) / pipeline, Index(micros > pipeline)};
}

Index micros_of(const RunConfig& run, const Layout& layout) { return run.largest_batch() / (layout.size(Axis::data) * run.train.micro_batch_size); }

// True if a rank's gradients fill more than one bucket, assuming that all stages are equally large.
bool has_buckets(const RunConfig& run, const Layout& layout) {
  const Index ranks = Index(layout.size(Axis::tensor)) * Index(layout.stages.size());
  return parameter_count(run.model) / ranks * Index(sizeof(float)) > layout.bucket_bytes;
}

// "model.layers.12.mamba.D" with the layer index indices[12]; other names are unchanged.
std::string in_layer(const std::string& name, const std::vector<Index>& indices) {
  const std::string layers = "model.layers.";
  if (!name.starts_with(layers)) return name;
  const std::size_t end = name.find('.', layers.size());
  return fmt::format("{}{}{}", layers, indices.at(std::stoul(name.substr(layers.size(), end - layers.size()))), name.substr(end));
}

// Kind of every layer as text: its type, encoder or not, and for each weight trained (+) or frozen (-).
std::vector<std::string> kinds_of(const RunConfig& run) {
  std::vector<std::string> kinds;
  for (const char symbol : run.model.pattern) kinds.emplace_back(1, symbol);
  for (Index i = 0; i < layers_of_encoder(run.model); ++i) kinds[i] += " of an encoder";
  const Trained trained = run.optimizer.trained();
  const std::string layers = "model.layers.";
  for (const Weight& w : declared_weights(run.model))
    if (w.name.starts_with(layers)) kinds.at(std::stoul(w.name.substr(layers.size()))) += trained(w) ? '+' : '-';
  return kinds;
}

void shrink_layers(Shrunk& small, const RunConfig& deck, const Layout& layout) {
  const std::vector<std::string> kinds = kinds_of(deck);
  small.run.model.pattern.clear(), small.run.parallel.layers.clear();
  for (const Span& stage : layout.stages) {
    std::map<std::string, Index> taken;
    const std::size_t before = small.from.size();
    for (Index layer = stage.first; layer < stage.last; ++layer) {
      const bool single_mixer = taken.size() == 1 && small.from.size() == before + 1;  // true if only one layer of the stage was taken so far
      if (taken[kinds[layer]]++ == 0 || single_mixer) small.from.push_back(layer);
    }
    small.run.parallel.layers.push_back(Index(small.from.size() - before));
  }
  for (const Index layer : small.from) small.run.model.pattern += deck.model.pattern[layer];
}

void shrink_heads(Index& heads, Index& shared, const Counts& over, const Layout& layout) {
  const auto divisibility = head_divisibility(heads, shared, over, layout);
  for (Index h = 1; h <= heads; ++h)
    for (Index s = 1; s <= std::min(h, shared); ++s)
      if (h % s == 0 && head_divisibility(h, s, over, layout) == divisibility) {
        heads = h, shared = s;
        return;
      }
}

template <class Suits>
void shrink_channels(Index& channels, Index heads, const Counts& over, const Suits& suits) {
  const auto divisibility = channel_divisibility(channels, heads, over);
  channels = smallest(head_width, channels, [&](Index n) { return channel_divisibility(n, heads, over) == divisibility && suits(n); });
}

// True if the rotary dimensions for this head_dim are even, and zero only if they were zero before.
bool same_rotary_use(const AttentionConfig& before, Index head_dim) {
  AttentionConfig c = before;
  c.head_dim = head_dim;
  return c.rotary_dim() % 2 == 0 && (c.rotary_dim() > 0) == (before.rotary_dim() > 0);
}

// Reduces an intermediate size so that it is distributed over tensor-parallel ranks as before.
void shrink_inner(Index& inner, Index tensor) {
  const auto divisibility = distributed(inner, tensor);
  inner = smallest(std::min(inner, inner_channels), inner, [&](Index n) { return distributed(n, tensor) == divisibility; });
}

// Distribution of the heads of latent attention (MLA) over all tensor-parallel ranks.
std::vector<Index> latent_head_divisibility(Index heads, const Layout& layout) {
  return head_divisibility(heads, heads, layout.size(Axis::tensor), layout.size(Axis::context));
}

void shrink_latent(LatentConfig& c, const Layout& layout) {
  const auto divisibility = latent_head_divisibility(c.num_heads, layout);
  c.num_heads = smallest(1, c.num_heads, [&](Index n) { return latent_head_divisibility(n, layout) == divisibility; });
  for (Index* channels : {&c.head_dim, &c.rope_dim, &c.v_head_dim}) *channels = std::min(*channels, head_width);
  for (Index* rank : {&c.q_rank, &c.kv_rank}) *rank = std::min(*rank, width);
}

// True for the layers that read model.delta.
bool is_delta(const LayerTraits& t) { return t.convolution.tokens && !t.ssm; }

Counts delta_over(const ModelConfig& m, const Layout& layout) { return distributed_over(all_layers(m), is_delta, {0, 0}, layout); }

// The chunk length of the gated delta rule changes rounding only, so that a few tokens suffice.
void shrink_delta(ModelConfig& m, const Layout& layout) {
  constexpr Index chunk = 3;
  const Counts over = delta_over(m, layout);
  shrink_channels(m.delta.head_dim, m.delta.num_heads, over, [](Index) { return true; });
  shrink_heads(m.delta.num_heads, m.delta.num_key_heads, over, layout);
  m.delta.key_dim = std::min(m.delta.key_dim, states), m.delta.chunk_size = std::min(m.delta.chunk_size, chunk);
}

// Width of the widest convolution among the model's layers, at least that of Mamba-2.
Index widest_convolution(const ModelConfig& m) {
  Index widest = m.mamba.conv_kernel;
  for (const char symbol : all_layers(m))
    if (const auto tokens = layer_type(symbol).traits.convolution.tokens) widest = std::max(widest, tokens(m));
  return widest;
}

// Width, attention and MLP of a stack. Stacks with a common relative position bias keep their equal number of heads.
template <class Config>
void shrink_stack(Config& c, const Counts& attention, bool keeps_heads, const Layout& layout) {
  const Index tensor = layout.size(Axis::tensor), channels = c.hidden_size;
  c.hidden_size = smallest(width, channels, [&](Index n) { return distributed(n, tensor) == distributed(channels, tensor); });
  shrink_channels(c.attention.head_dim, c.attention.num_heads, attention, [a = c.attention](Index n) { return same_rotary_use(a, n); });
  if (!keeps_heads) shrink_heads(c.attention.num_heads, c.attention.num_kv_heads, attention, layout);
  shrink_inner(c.mlp.intermediate_size, tensor);
}

void shrink_model(ModelConfig& m, const Layout& layout) {
  const Index tensor = layout.size(Axis::tensor);
  const Counts attention = attention_over(m, layout), ssm = ssm_over(m, layout);
  const bool keeps_heads = m.encoder && m.attention.relative_bias.buckets > 0;
  shrink_stack(m, attention, keeps_heads, layout);
  if (m.encoder) shrink_stack(*m.encoder, attention, keeps_heads, layout);
  shrink_channels(m.mamba.head_dim, m.mamba.num_heads, ssm, [](Index) { return true; });
  shrink_heads(m.mamba.num_heads, m.mamba.num_groups, ssm, layout);
  if (has_layer(all_layers(m), attends(AttentionKind::latent))) shrink_latent(m.latent, layout);
  shrink_delta(m, layout);
  m.mamba.state_size = std::min(m.mamba.state_size, states);
  if (has_layer(all_layers(m), &LayerTraits::experts)) {
    shrink_inner(m.moe.intermediate_size, tensor);
    m.moe.latent_size = std::min(m.moe.latent_size, width / 2);
    if (m.moe.shared_intermediate_size > 0) shrink_inner(m.moe.shared_intermediate_size, tensor);
  }
  const Index tokens = m.vocab_size;
  const auto rows = row_divisibility(tokens, tensor);
  m.vocab_size = smallest(vocabulary, tokens, [&](Index n) { return row_divisibility(n, tensor) == rows; });
  for (std::int32_t* token : {&m.pad_token_id, &m.decoder_start_token_id})
    if (*token < tokens) *token = std::min(*token, std::int32_t(m.vocab_size - 1));
  if (auto objective = m.objective->within(m.vocab_size)) m.objective = objective;
}

// Sequence length, micro-batch size and chunk size are reduced together, because the row count depends on all of them.
void shrink_sequences(RunConfig& run, const Layout& layout) {
  Index &length = run.train.seq_length, &batch = run.train.micro_batch_size, &chunk = run.model.mamba.chunk_size, &window = run.model.window.size;
  const Index kernel = widest_convolution(run.model), tensor = layout.size(Axis::tensor);
  const auto sequences = sequence_divisibility(layout, batch, length, kernel), chunks = chunk_divisibility(layout, length, chunk),
             windows = window_divisibility(layout, length, window), retrieval = retrieval_divisibility(run, layout);
  for (Index l = 1; l < length; ++l) {
    const Index block = layout.sequences(0, 1, l).block_length();
    if (block < block_of_tokens || (!retrieval.empty() && block % retrieval[0] != 0)) continue;
    for (Index b = one_or_several(batch); b <= std::min(batch, tensor + 1); ++b) {
      if (sequence_divisibility(layout, b, l, kernel) != sequences) continue;
      const Index c = smallest(3, block + 1, [&](Index n) { return chunk_divisibility(layout, l, n) == chunks; });
      if (chunk_divisibility(layout, l, c) != chunks) continue;
      const Index w = smallest(1, window, [&](Index n) { return window_divisibility(layout, l, n) == windows; });
      if (window_divisibility(layout, l, w) != windows) continue;
      length = l, batch = b, chunk = c, window = w;
      if (!retrieval.empty()) run.model.retrieval.chunk = block / retrieval[0];
      return;
    }
  }
}

void shrink_batch(RunConfig& run, Index micros, const Layout& layout) {
  const Index pipeline = layout.size(Axis::pipeline);
  const auto divisibility = micro_batch_divisibility(micros, pipeline);
  run.train.ramp.clear();
  run.train.global_batch_size = smallest(1, micros, [&](Index n) { return micro_batch_divisibility(n, pipeline) == divisibility; }) *
                                layout.size(Axis::data) * run.train.micro_batch_size;
}

// Replaces weight patterns of the deck (groups, frozen) by one entry per weight, because layers have new indices.
void name_weights(Shrunk& small, const OptimizerConfig& deck) {
  OptimizerConfig& o = small.run.optimizer;
  o.groups.clear(), o.frozen.clear();
  const Trained trained = deck.trained();
  for (Weight w : declared_weights(small.run.model)) {
    const std::string name = std::exchange(w.name, in_layer(w.name, small.from));
    if (w.learns && !trained(w)) o.frozen.push_back(name);
    for (const ParameterGroup& group : deck.groups)
      if (matches(group.pattern, w.name)) o.groups.push_back({name, group.lr_factor, group.weight_decay_factor});
  }
}

std::string layers_text(const std::string& pattern, const std::vector<Span>& stages) {
  const std::set<char> types(pattern.begin(), pattern.end());
  Index least = Index(pattern.size()), most = 0;
  for (const Span& stage : stages) least = std::min(least, stage.size()), most = std::max(most, stage.size());
  return fmt::format("{} of type {}, {} per stage", pattern.size(), std::string(types.begin(), types.end()),
                     least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most));
}

}  // namespace

DivisibilityByKey divisibility_of(const RunConfig& run, const Layout& layout) {
  const ModelConfig& m = run.model;
  const Index tensor = layout.size(Axis::tensor);
  const Counts attention = attention_over(m, layout), ssm = ssm_over(m, layout);
  const ModelConfig encoder = encoder_config(m);
  return {{"encoder.attention.num_heads", head_divisibility(encoder.attention.num_heads, encoder.attention.num_kv_heads, attention, layout)},
          {"encoder.attention.head_dim", channel_divisibility(encoder.attention.head_dim, encoder.attention.num_heads, attention)},
          {"encoder.mlp.intermediate_size", distributed(encoder.mlp.intermediate_size, tensor)},
          {"attention.num_heads", head_divisibility(m.attention.num_heads, m.attention.num_kv_heads, attention, layout)},
          {"attention.head_dim", channel_divisibility(m.attention.head_dim, m.attention.num_heads, attention)},
          {"latent.num_heads", latent_head_divisibility(m.latent.num_heads, layout)},
          {"mamba.num_heads", head_divisibility(m.mamba.num_heads, m.mamba.num_groups, ssm, layout)},
          {"mamba.head_dim", channel_divisibility(m.mamba.head_dim, m.mamba.num_heads, ssm)},
          {"delta.num_heads", head_divisibility(m.delta.num_heads, m.delta.num_key_heads, delta_over(m, layout), layout)},
          {"delta.head_dim", channel_divisibility(m.delta.head_dim, m.delta.num_heads, delta_over(m, layout))},
          {"mlp.intermediate_size", distributed(m.mlp.intermediate_size, tensor)},
          {"moe.intermediate_size", distributed(m.moe.intermediate_size, tensor)},
          {"moe.shared_intermediate_size",
           m.moe.shared_intermediate_size > 0 ? distributed(m.moe.shared_intermediate_size, tensor) : std::vector<Index>{}},
          {"vocab_size", row_divisibility(m.vocab_size, tensor)},
          {"seq_length", sequence_divisibility(layout, run.train.micro_batch_size, run.train.seq_length, widest_convolution(m))},
          {"mamba.chunk_size", chunk_divisibility(layout, run.train.seq_length, m.mamba.chunk_size)},
          {"retrieval.chunk", retrieval_divisibility(run, layout)},
          {"window.size", window_divisibility(layout, run.train.seq_length, m.window.size)},
          {"global_batch_size", micro_batch_divisibility(micros_of(run, layout), layout.size(Axis::pipeline))},
          {"bucket", {has_buckets(run, layout)}}};
}

Shrunk shrunk(const RunConfig& deck, const Layout& layout) {
  Shrunk small{deck, {}};
  small.run.parallel.data = layout.size(Axis::data);
  small.run.parallel.mixer = layout.attention_ranks > 0 ? Mixer::separate : Mixer::split, small.run.parallel.attention_ranks = layout.attention_ranks;
  shrink_layers(small, deck, layout);
  shrink_model(small.run.model, layout);
  shrink_sequences(small.run, layout);
  shrink_batch(small.run, micros_of(deck, layout), layout);
  name_weights(small, deck.optimizer);
  if (has_buckets(deck, layout)) small.run.parallel.bucket_bytes = small_bucket;
  return small;
}

std::string shrunk_table(const RunConfig& deck, const Layout& layout, const Shrunk& small) {
  Table table({{"reduced for the test", false}, {"deck", true}, {"test", true}});
  const auto row = [&](const char* name, auto&& value) {
    const std::string was = fmt::format("{}", value(deck)), is = fmt::format("{}", value(small.run));
    if (was != is) table.row({name, was, is});
  };
  const std::string layers = all_layers(deck.model);
  table.row(
      {"layers", layers_text(deck.model.pattern, layout.stages), layers_text(small.run.model.pattern, layout_of(small.run, layout.ranks()).stages)});
  row("model.vocab_size", [](const RunConfig& r) { return r.model.vocab_size; });
  row("model.hidden_size", [](const RunConfig& r) { return r.model.hidden_size; });
  row("model.attention.num_heads", [](const RunConfig& r) { return r.model.attention.num_heads; });
  row("model.attention.num_kv_heads", [](const RunConfig& r) { return r.model.attention.num_kv_heads; });
  row("model.attention.head_dim", [](const RunConfig& r) { return r.model.attention.head_dim; });
  row("model.encoder.hidden_size", [](const RunConfig& r) { return r.model.encoder ? r.model.encoder->hidden_size : 0; });
  row("model.encoder.attention.num_heads", [](const RunConfig& r) { return r.model.encoder ? r.model.encoder->attention.num_heads : 0; });
  row("model.encoder.attention.num_kv_heads", [](const RunConfig& r) { return r.model.encoder ? r.model.encoder->attention.num_kv_heads : 0; });
  row("model.encoder.attention.head_dim", [](const RunConfig& r) { return r.model.encoder ? r.model.encoder->attention.head_dim : 0; });
  row("model.encoder.mlp.intermediate_size", [](const RunConfig& r) { return r.model.encoder ? r.model.encoder->mlp.intermediate_size : 0; });
  row("model.latent.num_heads", [](const RunConfig& r) { return r.model.latent.num_heads; });
  row("model.latent.head_dim", [](const RunConfig& r) { return r.model.latent.head_dim; });
  row("model.latent.rope_dim", [](const RunConfig& r) { return r.model.latent.rope_dim; });
  row("model.latent.v_head_dim", [](const RunConfig& r) { return r.model.latent.v_head_dim; });
  row("model.latent.q_rank", [](const RunConfig& r) { return r.model.latent.q_rank; });
  row("model.latent.kv_rank", [](const RunConfig& r) { return r.model.latent.kv_rank; });
  row("model.mamba.num_heads", [](const RunConfig& r) { return r.model.mamba.num_heads; });
  row("model.mamba.num_groups", [](const RunConfig& r) { return r.model.mamba.num_groups; });
  row("model.mamba.head_dim", [](const RunConfig& r) { return r.model.mamba.head_dim; });
  row("model.mamba.state_size", [](const RunConfig& r) { return r.model.mamba.state_size; });
  row("model.mamba.chunk_size", [](const RunConfig& r) { return r.model.mamba.chunk_size; });
  if (has_layer(layers, is_delta)) {
    row("model.delta.num_heads", [](const RunConfig& r) { return r.model.delta.num_heads; });
    row("model.delta.num_key_heads", [](const RunConfig& r) { return r.model.delta.num_key_heads; });
    row("model.delta.head_dim", [](const RunConfig& r) { return r.model.delta.head_dim; });
    row("model.delta.key_dim", [](const RunConfig& r) { return r.model.delta.key_dim; });
    row("model.delta.chunk_size", [](const RunConfig& r) { return r.model.delta.chunk_size; });
  }
  if (has_layer(layers, attends(AttentionKind::window))) row("model.window.size", [](const RunConfig& r) { return r.model.window.size; });
  row("model.mlp.intermediate_size", [](const RunConfig& r) { return r.model.mlp.intermediate_size; });
  row("model.moe.intermediate_size", [](const RunConfig& r) { return r.model.moe.intermediate_size; });
  row("model.moe.latent_size", [](const RunConfig& r) { return r.model.moe.latent_size; });
  row("model.moe.shared_intermediate_size", [](const RunConfig& r) { return r.model.moe.shared_intermediate_size; });
  row("train.seq_length", [](const RunConfig& r) { return r.train.seq_length; });
  row("train.micro_batch_size", [](const RunConfig& r) { return r.train.micro_batch_size; });
  row("train.global_batch_size", [](const RunConfig& r) { return r.largest_batch(); });
  row("parallel.bucket", [](const RunConfig& r) { return fmt::format("{} bytes", r.parallel.bucket_bytes); });
  return table.str();
}

}  // namespace gyr
