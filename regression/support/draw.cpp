// SPDX-License-Identifier: BSD-3-Clause
#include "regression/support/draw.hpp"

#include <fmt/ranges.h>

#include <array>
#include <numeric>

#include "modules/layers/embedding.hpp"
#include "modules/objectives/classes.hpp"
#include "modules/objectives/masking.hpp"
#include "modules/objectives/sentence_order.hpp"
#include "modules/objectives/seq2seq.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/retrieval.hpp"

namespace gyr::testing {

namespace {

class Dice {
 public:
  Dice(std::uint64_t seed, const std::string& name) : stream_(seed, name) {}
  Index between(Index low, Index high) { return low + std::min<Index>(high - low, Index(stream_.uniform(rolled_++) * double(high - low + 1))); }
  bool chance(double p) { return stream_.uniform(rolled_++) < p; }
  double real(double low, double high) { return low + (high - low) * stream_.uniform(rolled_++); }
  template <class V>
  V of(const std::vector<V>& all) {
    return all[between(0, Index(all.size()) - 1)];
  }

 private:
  Stream stream_;
  Index rolled_ = 0;
};

std::vector<Index> divisors(Index n) {
  std::vector<Index> all;
  for (Index i = 1; i <= n; ++i)
    if (n % i == 0) all.push_back(i);
  return all;
}

// A number of heads, groups or channels that can be sharded over `ranks` ranks: a divisor or a multiple of `ranks`.
Index units(Dice& dice, int ranks) { return dice.chance(0.5) ? dice.of(divisors(ranks)) : ranks * dice.between(1, 3); }

// A multiple of `part` that can be sharded over `ranks` ranks, if `part` can.
Index multiple(Dice& dice, Index part, int ranks) {
  std::vector<Index> suit;
  for (Index n = part; n <= 24; n += part)
    if (n % ranks == 0 || ranks % n == 0) suit.push_back(n);
  return suit.empty() ? part : dice.of(suit);
}

AttentionConfig attention_of(Dice& dice, int tensor) {
  AttentionConfig c;
  c.num_kv_heads = units(dice, tensor);
  c.num_heads = multiple(dice, c.num_kv_heads, tensor);
  c.head_dim = 2 * dice.between(1, 6);
  c.rope_theta = 1e4;
  if (dice.chance(0.3)) c.rotary_fraction = double(2 * dice.between(0, c.head_dim / 2)) / double(c.head_dim);
  c.qk_norm = dice.chance(0.25);
  if (dice.chance(0.25)) c.soft_cap = dice.real(0.3, 3);
  c.bias = dice.chance(0.3), c.qkv_bias = dice.chance(0.3);
  if (dice.chance(0.3))
    c.rope_scaling = {dice.of<RopeScaling::Type>({RopeScaling::linear, RopeScaling::llama3, RopeScaling::yarn}), 4, 0.5, 2, dice.between(1, 16)};
  c.in_multiplier = dice.real(0.5, 2), c.key_multiplier = dice.real(0.5, 2), c.out_multiplier = dice.real(0.5, 2);
  return c;
}

MambaConfig mamba_of(Dice& dice, int tensor) {
  MambaConfig c;
  c.num_groups = units(dice, tensor);
  c.num_heads = multiple(dice, c.num_groups, tensor);
  c.head_dim = dice.between(1, 8), c.state_size = dice.between(1, 6), c.conv_kernel = dice.between(2, 4), c.chunk_size = dice.of<Index>({1, 2, 4, 8});
  c.norm = dice.of<SsmNorm>({SsmNorm::none, SsmNorm::gate_first, SsmNorm::norm_first});
  c.conv_bias = dice.chance(0.6), c.in_bias = dice.chance(0.3), c.out_bias = dice.chance(0.3);
  if (dice.chance(0.3)) c.dt_low = 0.1, c.dt_high = 0.6;
  c.in_multiplier = dice.real(0.5, 2), c.out_multiplier = dice.real(0.5, 2);
  for (double& m : c.multipliers) m = dice.real(0.5, 2);
  return c;
}

DeltaConfig delta_of(Dice& dice, int tensor, Index widest_kernel) {
  DeltaConfig c;
  c.num_key_heads = units(dice, tensor);
  c.num_heads = multiple(dice, c.num_key_heads, tensor);
  c.head_dim = dice.between(1, 6), c.key_dim = dice.between(1, 6), c.conv_kernel = dice.between(2, widest_kernel),
  c.chunk_size = dice.of<Index>({1, 2, 4, 8});
  return c;
}

MlpConfig mlp_of(Dice& dice, int tensor) {
  MlpConfig c;
  c.intermediate_size = units(dice, tensor);
  c.activation = dice.of<Activation>(
      {Activation::silu, Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu2, Activation::tanh, Activation::relu});
  c.gated = dice.chance(0.6), c.bias = dice.chance(0.3);
  c.gate_multiplier = dice.real(0.5, 2), c.down_multiplier = dice.real(0.5, 2);
  return c;
}

// Router loss terms (auxiliary and z loss) of the same size as the main loss.
MoeConfig moe_of(Dice& dice, int tensor) {
  MoeConfig c;
  Routing& r = c.routing;
  r.groups = dice.between(1, 3), r.top_groups = dice.between(1, r.groups);
  c.experts = r.groups * dice.between(1, 4);
  r.top_k = dice.between(1, c.experts / r.groups * r.top_groups);
  r.score = dice.of<Routing::Score>({Routing::softmax, Routing::sigmoid});
  r.normalize = dice.chance(0.5), r.scale = dice.real(0.5, 2);
  c.intermediate_size = units(dice, tensor), c.shared_intermediate_size = dice.chance(0.4) ? units(dice, tensor) : 0;
  c.bias = dice.chance(0.3);
  if (c.bias && dice.chance(0.5)) c.bias_update_rate = dice.real(0.001, 0.1);
  if (dice.chance(0.5)) c.aux_loss = dice.real(0.1, 2);
  if (r.score == Routing::softmax && dice.chance(0.3)) c.z_loss = dice.real(0.1, 1);
  return c;
}

LatentConfig latent_of(Dice& dice, int tensor) {
  LatentConfig c;
  c.num_heads = units(dice, tensor);
  c.head_dim = dice.between(1, 5), c.rope_dim = 2 * dice.between(1, 3), c.v_head_dim = dice.between(1, 6);
  c.q_rank = dice.chance(0.6) ? dice.between(1, 9) : 0, c.kv_rank = dice.between(1, 9);
  c.rope_theta = 100, c.norm_eps = 1e-4;
  c.neighbours = dice.chance(0.5), c.bias = dice.chance(0.3);
  return c;
}

ModelConfig model_of(Dice& dice, int tensor, int attention_ranks, Index layers) {
  ModelConfig m;
  for (Index i = 0; i < layers; ++i) m.pattern += dice.chance(0.6) ? 'P' : dice.of<char>({'M', '*', 'W', 'W', '-', 'B', 'E', 'E', 'L', 'L'});
  m.hidden_size = dice.between(3, 14), m.vocab_size = dice.between(3, 40);
  m.rms_norm_eps = dice.of<double>({1e-5, 1e-3});
  m.norm = dice.chance(0.3) ? dice.of<NormType>({NormType::layer, NormType::layer_no_bias}) : NormType::rms;
  if (m.norm == NormType::rms && dice.chance(0.3)) m.norm_offset = dice.of<double>({1, 0.5});
  if (dice.chance(0.25)) m.lm_head_soft_cap = dice.real(0.5, 5);
  m.tie_word_embeddings = dice.chance(0.4);
  m.embedding_multiplier = dice.real(0.5, 2), m.lm_head_multiplier = dice.real(0.5, 2);
  if (dice.chance(0.2)) m.pad_token_id = std::int32_t(dice.between(0, m.vocab_size - 1));
  m.attention = attention_of(dice, attention_ranks > 0 ? attention_ranks : tensor);
  m.window.size = dice.of<Index>({1, dice.between(2, 4), dice.between(5, 12), 20});  // shorter than a block of tokens up to longer than a sequence
  if (dice.chance(0.5)) m.window.rope_theta = 100;
  m.mamba = mamba_of(dice, tensor - attention_ranks);
  m.mlp = mlp_of(dice, tensor);
  m.moe = moe_of(dice, tensor);
  m.latent = latent_of(dice, tensor);
  if (attention_ranks > 0)  // layers with one mixer are sharded over all tensor ranks, so they must be divisible
    for (char& symbol : m.pattern) {
      ModelConfig of_one = m;
      of_one.pattern = symbol;
      if (!can_shard(of_one, tensor, attention_ranks)) symbol = '-';
    }
  return m;
}

// Settings with random streams of their own, so that adding them did not change the other draws.
void draw_extras(Dice& dice, ModelConfig& m) {
  if (dice.chance(0.4)) {
    DropoutConfig& d = m.dropout;
    d = {dice.real(0.1, 0.6), dice.real(0.1, 0.6), dice.real(0.1, 0.6), dice.real(0.1, 0.6)};
    for (double* p : {&d.embedding, &d.residual, &d.attention, &d.head})
      if (dice.chance(0.3)) *p = 0;
  }
  m.attention.sinks = dice.chance(0.3);
  if (dice.chance(0.15)) m.attention.rope_scaling = {RopeScaling::dynamic, 4, 1, 4, dice.between(1, 16)};
  if (m.mlp.gated && dice.chance(0.2)) m.mlp.activation = Activation::clamped_swiglu;
  if (dice.chance(0.3)) m.moe.activation = dice.of<Activation>({Activation::clamped_swiglu, Activation::gelu});
  m.moe.expert_bias = dice.chance(0.3), m.moe.router_bias = dice.chance(0.3);
  if (m.pattern.find_first_of("P*-W") != m.pattern.npos && dice.chance(0.2)) {
    m.lora.rank = dice.between(1, 3), m.lora.alpha = dice.real(0.5, 8), m.lora.targets = {"*"};
    if (dice.chance(0.3)) m.lora.also = {dice.of<std::string>({"*norm*", "*", "model.layers.0.*"})};
  }
}

// Gated delta nets, attention with an output gate, and gated shared experts, with random streams of their own.
void draw_gated(Dice& dice, ModelConfig& m, int tensor) {
  m.delta = delta_of(dice, tensor, m.mamba.conv_kernel);  // the sequence is long enough for Mamba-2's kernel
  if (m.pattern.find(encoder_end) == m.pattern.npos)
    for (char& symbol : m.pattern)
      if (dice.chance(0.2)) symbol = 'G';
  const bool biased = m.attention.bias || m.attention.qkv_bias;
  m.attention.output_gate = dice.chance(0.3) && !biased;
  m.moe.shared_gate = m.moe.shared_intermediate_size > 0 && dice.chance(0.5);
}

// Norms of OLMo 2: on the outputs of branches only, and over the queries and the keys of all heads.
void draw_output_norms(Dice& dice, ModelConfig& m) {
  if (m.norm_placement == NormPlacement::both && dice.chance(0.5)) m.norm_placement = NormPlacement::output;
  if (m.norm_offset == 0 && dice.chance(0.3)) m.attention.qk_norm = m.attention.qk_norm_all_heads = true;
}

// Experts on a latent of the stream, with a random stream of its own. It may be wider than the stream.
void draw_latent_experts(Dice& dice, MoeConfig& c) {
  if (dice.chance(0.3)) c.latent_size = dice.between(1, 16);
}

// Multi-token prediction modules with layer types of the model, so that they are shardable too.
void draw_ahead(Dice& dice, Draw& d) {
  if (d.masked || d.classes > 0 || d.source_length > 0 || d.model.attention.relative_bias.buckets > 0 || !dice.chance(0.4)) return;
  const std::string& pattern = d.model.pattern;
  d.ahead.depths = dice.of<Index>({1, 1, 2, 3}), d.ahead.weight = dice.real(0.3, 3);
  for (Index i = dice.between(1, 2); i > 0; --i) d.ahead.pattern += pattern[dice.between(0, Index(pattern.size()) - 1)];
}

std::vector<Index> chunk_begins_of(Dice& dice, Index layers, int stages) {
  std::vector<Index> borders(layers - 1);
  std::iota(borders.begin(), borders.end(), 1);
  while (Index(borders.size()) > stages - 1) borders.erase(borders.begin() + dice.between(0, Index(borders.size()) - 1));
  return borders;
}

std::vector<int> permutation_of(Dice& dice, int ranks) {
  std::vector<int> order(ranks);
  std::iota(order.begin(), order.end(), 0);
  for (int i = ranks - 1; i > 0; --i) std::swap(order[i], order[dice.between(0, i)]);
  return order;
}

// Minimum sequence length: with context parallelism, every block of tokens must hold the inputs of the convolution
// before the next block.
Index least_length(const Draw& d) {
  if (d.context == 1) return 1;
  return (d.model.mamba.conv_kernel - 2) * d.context * (d.tokens == SequenceOrder::zigzag ? 2 : 1) + 1;
}

bool sound(const Draw& d) {
  const ModelConfig& m = d.model;
  const std::size_t end = m.pattern.find(encoder_end);
  const bool encodes = end != std::string::npos && end > 0 && end + 1 < m.pattern.size();
  if (d.source_length > 0 ? !encodes || d.source_length < least_length(d) : m.pattern.find_first_of(">X") != std::string::npos) return false;
  if (d.beta > 0 && (!d.packed || d.seq_length < 3)) return false;
  return m.attention.num_heads % m.attention.num_kv_heads == 0 && m.mamba.num_heads % m.mamba.num_groups == 0 &&
         m.delta.num_heads % m.delta.num_key_heads == 0 && m.layers() >= d.pipeline * d.chunks && d.seq_length >= least_length(d) &&
         (d.chunks == 1 || d.micros % d.pipeline == 0) && (d.data * d.context) % d.expert == 0 && m.moe.experts % d.expert == 0 &&
         d.attention_ranks < d.tensor && can_shard(d.full_model(), d.tensor, d.attention_ranks) &&
         (d.ahead.depths == 0 || m.attention.relative_bias.buckets == 0) &&
         (d.context_mode != ContextMode::heads || can_exchange(d.full_model(), d.tensor, d.context, d.attention_ranks));
}

// Turns the first layers into an encoder that ends at a random layer, and the others into its decoder.
void make_encoder(Draw& d, Dice& dice) {
  ModelConfig& m = d.model;
  const Index end = dice.between(1, m.layers() - 2);
  for (Index i = 0; i < m.layers(); ++i)
    if (i < end) m.pattern[i] = dice.of<char>({'*', '*', '-', 'B'});
    else if (m.pattern[i] == 'P' || dice.chance(0.3)) m.pattern[i] = dice.of<char>({'X', '*'});
  m.pattern[end] = encoder_end, m.pattern[end + 1] = 'X';
  m.attention.causal = true, m.embed_norm = false;
  if (m.norm_placement == NormPlacement::after) m.norm_placement = NormPlacement::before;
  d.source_length = std::max(dice.between(1, 15), least_length(d));
  if (m.positions > 0) m.positions = std::max(m.positions, d.source_length);
  d.packed = d.masked = false, d.classes = 0;
  d.padded = dice.chance(0.5);
}

}  // namespace

Draw draw(std::uint64_t seed, Index number, int most_ranks, int context) {
  Dice layout(seed, fmt::format("layout {}", number / 5)), dice(seed, fmt::format("draw {}", number));
  const auto ranks = layout.between(2, most_ranks);
  Draw d;
  d.tensor = int(layout.of(divisors(ranks)));
  if (d.tensor == 1 && layout.chance(0.5)) d.tensor = int(ranks);
  d.pipeline = int(layout.of(divisors(ranks / d.tensor)));
  d.data = int(ranks) / d.tensor / d.pipeline;
  if (d.data > 1 && layout.chance(0.7)) {
    while (d.context == 1) d.context = int(layout.of(divisors(d.data)));
    d.data /= d.context;
  }
  if (layout.chance(0.5)) std::swap(d.tensor, d.context);
  if (context > 0) {
    d.context = context, d.data = 1;
    d.tensor = int(layout.between(1, std::min(2, most_ranks / context)));
    d.pipeline = int(layout.between(1, std::min(2, most_ranks / context / d.tensor)));
  }
  d.tokens = layout.of<SequenceOrder>({SequenceOrder::zigzag, SequenceOrder::contiguous});
  if (d.pipeline > 1 && d.pipeline < 5 && layout.chance(0.3)) d.chunks = int(layout.between(2, 3));
  const Index layers = d.pipeline * d.chunks + layout.between(0, 2);
  d.chunk_begins = chunk_begins_of(layout, layers, d.pipeline * d.chunks);
  if (layout.chance(0.3))
    d.order = layout.of<std::vector<Axis>>(
        {{Axis::tensor, Axis::data, Axis::pipeline}, {Axis::pipeline, Axis::data, Axis::tensor}, {Axis::tensor, Axis::pipeline, Axis::data}});
  if (layout.chance(0.3)) d.permutation = permutation_of(layout, d.ranks());
  d.sequence = d.tensor > 1 && layout.chance(0.4);
  d.bucket_bytes = layout.of<Index>({part_by_part, one_bucket});
  if (d.data * d.context > 1 && layout.chance(0.7)) d.shard = layout.of<Shard>({Shard::optimizer, Shard::gradients, Shard::weights});
  if (d.tensor > 1 && layout.chance(0.4)) d.attention_ranks = int(layout.between(1, d.tensor - 1));
  if (d.data * d.context > 1 && layout.chance(0.6)) d.expert = int(layout.of(divisors(d.data * d.context)));
  d.model = model_of(dice, d.tensor, d.attention_ranks, layers);
  if (d.model.moe.experts % d.expert != 0) d.model.moe.experts *= d.expert;
  if (d.expert > 1 && dice.chance(0.7)) d.model.pattern[dice.between(0, layers - 1)] = 'E';
  const auto mode = layout.of<ContextMode>({ContextMode::ring, ContextMode::heads, ContextMode::balanced, ContextMode::balanced});
  if (d.context > 1) d.context_mode = mode;
  if (d.context_mode == ContextMode::balanced) d.tokens = SequenceOrder::contiguous;
  if (d.context_mode == ContextMode::heads) {  // key heads as drawn; query heads to fit the all-to-all of heads
    const int ranks = d.attention_ranks > 0 ? d.attention_ranks : d.tensor;
    for (const char mixer : {'*', 'W'})
      if (d.attention_ranks > 0) std::replace(d.model.pattern.begin(), d.model.pattern.end(), mixer, 'P');
    const Index keys = d.model.attention.num_kv_heads, here = std::max<Index>(1, keys / ranks);
    if (here % d.context != 0 && d.context % here != 0) d.model.attention.num_kv_heads = keys * d.context;
    d.model.attention.num_heads = d.model.attention.num_kv_heads * d.context * dice.between(1, 2);
    while (d.model.attention.num_heads % (ranks * d.context) != 0) d.model.attention.num_heads += d.model.attention.num_kv_heads;
    d.model.latent.num_heads = d.tensor * d.context * dice.between(1, 2);
  }
  if (dice.chance(0.06)) {  // counts that may not be shardable
    d.model.mamba.num_groups = dice.between(1, 7), d.model.mamba.num_heads = d.model.mamba.num_groups * dice.between(1, 3);
    d.model.mlp.intermediate_size = dice.between(1, 30), d.model.moe.intermediate_size = dice.between(1, 30);
  }
  d.micro_batch_size = dice.between(1, 2), d.seq_length = std::max(dice.between(1, 13), least_length(d)), d.micros = int(dice.between(1, 3));
  if (d.chunks > 1) d.micros = d.pipeline * int(dice.between(1, 2));
  else d.schedule = dice.of<Draw::Kind>({Draw::one_forward_one_backward, Draw::one_forward_one_backward, Draw::all_forward, Draw::zero_bubbles});
  d.packed = dice.chance(0.4), d.some_ignored = dice.chance(0.4);
  if (dice.chance(0.5)) d.recompute.all = dice.of<Recompute>({RecomputeCost::pass, RecomputeCost::gemm, RecomputeCost::sum});
  if (dice.chance(0.2)) d.recompute.by_type['P'] = dice.of<Recompute>({{}, RecomputeCost::pass, RecomputeCost::gemm, RecomputeCost::sum});
  if (Dice host(seed, fmt::format("swap {}", number)); host.chance(0.3)) d.offload = {true, host.of<double>({1, 1, 0.5, 0})};
  if (dice.chance(0.25)) d.terms = {dice.real(0.01, 0.5), dice.of<double>({0, dice.real(0, 0.1)})};
  if (dice.chance(0.25)) d.model.positions = d.seq_length + dice.between(0, 5);
  if (dice.chance(0.2)) d.frozen = {dice.of<std::string>({"model.layers.0.*", "*.mamba.*", "*_proj.weight", "model.embed_tokens.weight", "*norm*"})};
  d.model.attention.causal = d.context_mode == ContextMode::balanced || dice.chance(0.6);
  d.model.norm_placement = dice.of<NormPlacement>({NormPlacement::before, NormPlacement::before, NormPlacement::after, NormPlacement::both});
  d.model.embed_norm = d.model.norm_placement == NormPlacement::before && dice.chance(0.3);
  if (dice.chance(0.2)) d.model.type_vocab_size = dice.between(1, 3);
  d.masked = dice.chance(0.3);
  if (d.masked) d.masked_fraction = dice.of<double>({1, 0.5, 0.2, 0.01}), d.head_bias = dice.chance(0.5);
  if (dice.chance(0.3)) {  // often fewer classes than ranks
    d.classes = dice.between(2, 5), d.tagged = dice.chance(0.4);
    d.pool = dice.of<Pool>({Pool::first, Pool::mean});
    d.front = dice.of<ClassFront>({ClassFront::usual, ClassFront::transform, ClassFront::transform_no_bias});
    d.masked = d.model.tie_word_embeddings = false;
  }
  if (d.context_mode != ContextMode::balanced && d.attention_ranks == 0 && layers > 2 && dice.chance(0.35)) make_encoder(d, dice);
  const bool hybrid = d.model.pattern.find('P') != std::string::npos;
  if (!hybrid && d.attention_ranks == 0 && dice.chance(0.5))
    d.model.attention.relative_bias = {2 * dice.between(2, 5), dice.between(6, 20)}, d.model.attention.soft_cap = 0;
  Dice extras(seed, fmt::format("extras {}", number));
  draw_extras(extras, d.model);
  Dice gated(seed, fmt::format("gated {}", number));
  draw_gated(gated, d.model, d.tensor);
  Dice latents(seed, fmt::format("latents of experts {}", number));
  draw_latent_experts(latents, d.model.moe);
  Dice outputs(seed, fmt::format("norms of outputs {}", number));
  draw_output_norms(outputs, d.model);
  Dice ahead(seed, fmt::format("tokens ahead {}", number));
  draw_ahead(ahead, d);
  if (Dice pairs(seed, fmt::format("pairs {}", number));
      !d.masked && d.classes == 0 && d.source_length == 0 && d.seq_length > 2 && pairs.chance(0.15)) {
    d.beta = pairs.real(0.05, 2), d.packed = true;
    d.ahead.depths = 0, d.terms = {};
  }
  if (Dice bonus(seed, fmt::format("entropy bonus {}", number)); d.beta == 0 && bonus.chance(0.25)) d.terms.entropy = bonus.real(0.01, 0.5);
  Dice halves(seed, fmt::format("order of halves {}", number));
  d.ordered = d.masked && !d.model.attention.causal && halves.chance(0.6);
  if (d.ordered && halves.chance(0.5)) d.model.type_vocab_size = halves.between(2, 3);
  Dice expert_dice(seed, fmt::format("room of experts {}", number));
  if (expert_dice.chance(0.5)) d.model.moe.capacity_factor = expert_dice.real(0.2, 1.6);
  if (expert_dice.chance(0.5)) d.model.moe.drop_policy = DropPolicy::probability;
  const bool limited = d.model.moe.capacity_factor > 0 && d.model.pattern.find('E') != std::string::npos;
  if (limited && d.beta == 0 && expert_dice.chance(0.7)) d.distinct_tokens = expert_dice.between(2, 3);  // equal texts of a pair have no gradient
  if (d.model.lora) d.frozen.clear();
  return d;
}

Layout Draw::layout() const {
  std::vector<Span> stages;
  Index first = 0;
  for (const Index chunk_begin : chunk_begins) stages.push_back({first, chunk_begin}), first = chunk_begin;
  stages.push_back({first, model.layers()});
  Layout layout = grid_layout(data, pipeline, tensor, stages, permutation, order, context);
  layout.order = tokens, layout.context_mode = context_mode;
  layout.sequence = sequence, layout.attention_ranks = attention_ranks;
  layout.expert = expert;
  layout.shard = shard, layout.bucket_bytes = bucket_bytes;
  return layout;
}

std::shared_ptr<const Objective> Draw::objective() const {
  if (classes > 0) return tagged ? tag(numbered_classes(classes), front) : classify(numbered_classes(classes), pool, front);
  if (beta > 0) return preference(beta);
  if (masked) return masked_tokens({.fraction = masked_fraction, .head_bias = head_bias, .sentence_order = ordered});
  if (padded && source_length > 0 && ahead.depths == 0) return seq2seq({source_length});
  return ahead.depths > 0 ? multi_token(ahead) : next_token();
}

ModelConfig Draw::full_model() const {
  ModelConfig m = model;
  m.objective = objective(), m.loss_terms = terms;
  return m;
}

EngineConfig Draw::config(int micros_of_a_rank) const {
  EngineConfig c;
  c.model = full_model();
  c.micro_batch_size = micro_batch_size, c.seq_length = seq_length, c.source_length = source_length, c.micros = micros_of_a_rank;
  if (reads_neighbours(model)) c.source_length = model.retrieval.source_length(seq_length);
  if (pipeline > 1) c.schedule = chunks > 1 ? interleaved : std::array{one_f_one_b, all_forward_all_backward, zero_bubble}[schedule];
  c.optimizer.frozen = frozen, c.optimizer.lora = model.lora;
  c.recompute = recompute, c.offload = offload;
  c.fp8 = fp8;
  c.seed = 11;
  return c;
}

namespace {
// Pairs successive documents of each sequence, with the labels of the batch, for the preference objective.
NamedHostValues pairs_of(const MicroBatch& m, const ModelConfig& model) {
  NamedHostValues all;
  for (Index b = 0; b < m.batch; ++b) {
    const auto part = [&](const auto& rows) { return std::vector(rows.begin() + b * m.seq_length, rows.begin() + (b + 1) * m.seq_length); };
    std::vector<Token> tokens = part(m.tokens);
    const std::vector<std::int32_t> positions = part(m.positions);
    std::vector<std::uint8_t> learned{0};
    for (const Token label : part(m.labels)) learned.push_back(label != ignored_label);
    std::vector<TextSpan> texts;
    for (Index t = 0; t < m.seq_length; ++t) {
      if (positions[t] == 0) texts.push_back({t, 0, Index(texts.size()), -3.0 - double(t % 5)});
      ++texts.back().count;
    }
    ++texts.back().count;  // the target token after the last token that is read
    tokens.push_back(0);
    const Objective& objective = *model.objective;
    const Labelled labelled = objective.label({tokens, learned, {}, b, m.batch, positions, {}, 0, texts});
    append_values(objective.fields(model, m.seq_length), labelled.values, m.seq_length, all);
  }
  return all;
}

// Adds sentence-order labels for some documents, and a token type (half 0 or 1) for every token.
void label_halves(MicroBatch& m, Dice& dice) {
  for (Index r = 0; r < Index(m.tokens.size()); ++r) {
    const bool begins = m.positions.empty() ? r % m.seq_length == 0 : m.positions[r] == 0;
    m.values[order_labels].push_back(begins && dice.chance(0.7) ? Token(dice.between(0, 1)) : ignored_label);
    m.values[token_types].push_back(Token(dice.between(0, 1)));
  }
}
}  // namespace

MicroBatch Draw::batch(Index i) const {
  const Index distinct = distinct_tokens > 0 ? std::min(distinct_tokens + 1, model.vocab_size) : model.vocab_size;
  MicroBatch m = testing::micro_batch(i * micro_batch_size, micro_batch_size, seq_length, distinct);
  Dice dice(1, fmt::format("batch {}", i));
  const double begins = dice.of<double>({0.3, 0.1, 0.03});  // probability that a document starts: documents within a block of tokens, or across many
  if (packed)
    for (Index r = 0, at = 0; r < micro_batch_size * seq_length; ++r) {
      at = r % seq_length == 0 || dice.chance(begins) ? 0 : at + 1;
      m.positions.push_back(std::int32_t(at));
      if (at == 0 && r % seq_length != 0) m.labels[r - 1] = ignored_label;
    }
  for (Token& label : m.labels)
    if (some_ignored && dice.chance(0.5)) label = ignored_label;
  if (i == 0) m.labels[0] = m.tokens[0];  // guarantees at least one label per step
  m.source.length = source_length;
  if (source_length > 0)
    m.source.tokens = testing::micro_batch(1000 + i * micro_batch_size, micro_batch_size, source_length, model.vocab_size).tokens;
  if (std::mt19937_64 random(std::uint64_t(2 + i)); reads_neighbours(model)) add_neighbours_to(m, model, random, !padded);
  for (Index b = 0; b < micro_batch_size && padded && source_length > 0; ++b) m.source.lengths.push_back(dice.between(1, source_length));
  for (Token& label : m.labels)
    if (classes > 0 && label != ignored_label) label %= Token(classes);
  const Index most = objective()->most_labels(seq_length);
  for (Index r = 0, count = 0; r < Index(m.labels.size()); ++r) {
    if (r % seq_length == 0) count = 0;
    if (m.labels[r] != ignored_label && ++count > most) m.labels[r] = ignored_label;
  }
  if (beta > 0 && i == 0)  // guarantees at least one pair of texts per step
    for (Index r = 0; r < seq_length; ++r) {
      m.positions[r] = std::int32_t(r < 2 ? r : r - 2);
      if (r < 3) m.labels[r] = r == 1 ? ignored_label : m.tokens[r];
    }
  if (beta > 0) m.values = pairs_of(m, full_model());
  if (ordered) label_halves(m, dice);
  return with_future_tokens(std::move(m), objective()->depths());
}

std::string Draw::layout_text() const {
  std::string axes;
  for (const Axis axis : order) axes += fmt::format(" {}", name_of(axis));
  const std::string shared =
      context > 1
          ? fmt::format(" context {}{}", context, fmt::format("{} {}", tokens == SequenceOrder::zigzag ? "" : " in order", name_of(context_mode)))
          : "";
  return fmt::format("data {}{}{} pipeline {}{}{} tensor {}{}{}{}, buckets of {}, {} layers split at [{}], permutation [{}]", data,
                     shard == Shard::none ? "" : fmt::format(" sharded {}", name_of(shard)),
                     expert > 1 ? fmt::format(" expert parallel {}", expert) : "", pipeline, chunks > 1 ? fmt::format(" of {} chunks", chunks) : "",
                     shared, tensor, attention_ranks > 0 ? fmt::format(" ({} attention)", attention_ranks) : "", sequence ? " sequence" : "",
                     axes.empty() ? "" : " in order" + axes, bucket_bytes, model.layers(), fmt::join(chunk_begins, " "), fmt::join(permutation, " "));
}

std::string Draw::text() const {
  const AttentionConfig& a = model.attention;
  const MambaConfig& c = model.mamba;
  const char* norms[] = {"none", "gate first", "norm first"};
  const auto list = [](const auto& all) { return fmt::format("[{}]", fmt::join(all, " ")); };
  std::string s = fmt::format("{}, {} micro-batches of {} x {}", layout_text(), micros, micro_batch_size, seq_length);
  if (schedule == all_forward) s += ", all forward first";
  if (schedule == zero_bubbles) s += ", zero bubble";
  const auto policy = [](const Recompute& r) { return r ? int(*r) : -1; };
  if (recompute.all) s += fmt::format(", recomputing {}", policy(recompute.all));
  for (const auto& [symbol, of_type] : recompute.by_type) s += fmt::format(", {} recomputing {}", symbol, policy(of_type));
  if (offload.on) s += fmt::format(", offloading with alpha {}", offload.alpha);
  if (terms.smoothing > 0) s += fmt::format(", smoothed {:.3} z {:.3}", terms.smoothing, terms.z);
  if (terms.entropy > 0) s += fmt::format(", entropy bonus {:.3}", terms.entropy);
  if (ahead.depths > 0) s += fmt::format(", MTP depth {} with layers {} weight {:.3}", ahead.depths, ahead.pattern, ahead.weight);
  if (beta > 0) s += fmt::format(" pairs with beta {:.3}", beta);
  if (masked) s += fmt::format(" {} masked tokens{}{}", masked_fraction, head_bias ? "" : " head without bias", ordered ? " and sentence order" : "");
  if (classes > 0) s += fmt::format(" {} classes of {}", classes, tagged ? "tokens" : pool == Pool::mean ? "texts by their mean" : "texts");
  if (classes > 0) s += std::array{"", " transformed", " transformed without bias"}[int(front)];
  if (source_length > 0) s += fmt::format(" encoder inputs of {}{}", source_length, padded ? " or less" : "");
  if (model.attention.relative_bias.buckets > 0)
    s += fmt::format(" relative bias with {} buckets up to distance {}", model.attention.relative_bias.buckets,
                     model.attention.relative_bias.max_distance);
  if (packed) s += " packed";
  if (some_ignored) s += " some ignored";
  if (distinct_tokens > 0) s += fmt::format(" {} distinct tokens", distinct_tokens);
  if (!frozen.empty()) s += " frozen " + list(frozen);
  if (model.lora) s += fmt::format(" LoRA of rank {} and trained weights {}", model.lora.rank, list(model.lora.also));
  s += fmt::format("; {} hidden_size {} vocab_size {}{}{}", model.pattern, model.hidden_size, model.vocab_size,
                   model.tie_word_embeddings ? " tied" : "", model.pad_token_id >= 0 ? " padding" : "");
  s += fmt::format("{}{}{}{}{}{}", std::array{"", " norms after", " norms on both sides", " norms of outputs"}[int(model.norm_placement)],
                   std::array{"", " LayerNorm", " LayerNorm without bias"}[int(model.norm)], model.embed_norm ? " first norm of the embedding" : "",
                   model.type_vocab_size > 0 ? fmt::format(" {} types", model.type_vocab_size) : "",
                   model.positions > 0 ? fmt::format(" {} positions", model.positions) : "", a.causal ? "" : " bidirectional");
  s += fmt::format("; attention {}/{} heads of {}{}", a.num_heads, a.num_kv_heads, a.head_dim, a.bias ? " biases" : "");
  if (a.qk_norm_all_heads) s += ", norm over all heads";
  if (model.norm_offset > 0) s += fmt::format(", norm offset {}", model.norm_offset);
  if (a.soft_cap > 0 || model.lm_head_soft_cap > 0) s += fmt::format(", soft caps {:.3} and {:.3}", a.soft_cap, model.lm_head_soft_cap);
  const DropoutConfig& d = model.dropout;
  if (d.any()) s += fmt::format(", dropout {:.3} {:.3} {:.3} {:.3}", d.embedding, d.residual, d.attention, d.head);
  constexpr const char* recipes[] = {"", ", FP8 by tensor", ", FP8 by blocks", ", MXFP8"};
  s += fmt::format("{}{}{}{}", model.linear == LinearLayers::ternary ? ", ternary" : "", recipes[int(fp8)], a.sinks ? ", sinks" : "",
                   a.rope_scaling.type == RopeScaling::dynamic ? ", dynamic RoPE scaling" : "");
  s += fmt::format(", window {}{}", model.window.size, model.window.rope_theta > 0 ? " with its own rope_theta" : "");
  s += fmt::format("; mamba {} heads of {}, {} groups of {}, conv_kernel {} chunk_size {} norm {}{}{}{}", c.num_heads, c.head_dim, c.num_groups,
                   c.state_size, c.conv_kernel, c.chunk_size, norms[int(c.norm)], c.in_bias ? " in_bias" : "", c.out_bias ? " out_bias" : "",
                   c.conv_bias ? " conv_bias" : "");
  s += fmt::format("; mlp {}{}{}", model.mlp.intermediate_size, model.mlp.bias ? " biases" : "",
                   model.mlp.activation == Activation::clamped_swiglu ? " clamped" : "");
  const DeltaConfig& g = model.delta;
  s += fmt::format("; delta {} heads of {}, {} key heads of {}, conv_kernel {} chunk_size {}{}{}", g.num_heads, g.head_dim, g.num_key_heads,
                   g.key_dim, g.conv_kernel, g.chunk_size, a.output_gate ? ", attention with output gate" : "",
                   model.moe.shared_gate ? ", gated shared expert" : "");
  const LatentConfig& l = model.latent;
  s += fmt::format("; latent {} heads of {} and {} and {} of {} and {}{}{}", l.num_heads, l.head_dim, l.rope_dim, l.v_head_dim, l.q_rank, l.kv_rank,
                   l.neighbours ? " neighbours" : "", l.bias ? " biases" : "");
  const MoeConfig& e = model.moe;
  const Routing& r = e.routing;
  if (e.capacity_factor > 0)
    s += fmt::format("; expert capacity factor {:.3} dropping by {}", e.capacity_factor,
                     e.drop_policy == DropPolicy::position ? "position" : "probability");
  s += fmt::format("; experts{}{}{}", e.router_bias ? " of a biased router" : "", e.expert_bias ? " with biases" : "",
                   e.activation == Activation::silu ? "" : fmt::format(" activated by {}", int(e.activation)));
  if (e.latent_size > 0) s += fmt::format(" on a latent of {}", e.latent_size);
  return s + fmt::format("; moe {} of {} experts in {} of {} groups, {}{}{} by {:.3} aux {:.3} z {:.3}, {} and {} shared", r.top_k, e.experts,
                         r.top_groups, r.groups, r.score == Routing::softmax ? "softmax" : "sigmoid", r.normalize ? " normalized" : "",
                         e.bias ? " biased" : "", r.scale, e.aux_loss, e.z_loss, e.intermediate_size, e.shared_intermediate_size);
}

std::vector<Draw> simpler(const Draw& from) {
  std::vector<Draw> all;
  const auto attempt = [&](auto&& change) {
    Draw d = from;
    change(d);
    if (d.text() != from.text() && sound(d)) all.push_back(std::move(d));
  };
  attempt([](Draw& d) { d.permutation.clear(); });
  attempt([](Draw& d) { d.order.clear(); });
  attempt([](Draw& d) { d.sequence = false; });
  attempt([](Draw& d) { d.attention_ranks = 0; });
  attempt([](Draw& d) { d.shard = Shard::none; });
  attempt([](Draw& d) { d.expert = 1; });
  attempt([](Draw& d) { d.bucket_bytes = one_bucket; });
  attempt([](Draw& d) { d.schedule = Draw::one_forward_one_backward; });
  attempt([](Draw& d) { d.chunks = 1, d.chunk_begins.resize(d.pipeline - 1); });
  attempt([](Draw& d) { d.data = d.expert = 1, d.permutation.clear(); });
  attempt([](Draw& d) { d.context = d.expert = 1, d.permutation.clear(); });
  attempt([](Draw& d) { d.tokens = SequenceOrder::contiguous; });
  attempt([](Draw& d) { d.context_mode = ContextMode::ring; });
  attempt([](Draw& d) { d.pipeline = d.chunks = 1, d.chunk_begins.clear(), d.permutation.clear(); });
  attempt([](Draw& d) { d.tensor = 1, d.attention_ranks = 0, d.sequence = false, d.permutation.clear(); });
  for (Index layer = 0; layer < from.model.layers(); ++layer) {
    attempt([&](Draw& d) {
      if (d.model.layers() == d.pipeline * d.chunks) return;
      d.model.pattern.erase(layer, 1);
      std::iota(d.chunk_begins.begin(), d.chunk_begins.end(), 1);
    });
    attempt([&](Draw& d) {
      if (d.model.pattern[layer] == 'W') d.model.pattern[layer] = '*';
    });
    for (const char symbol : {'-', '*', 'M'})
      attempt([&](Draw& d) {
        if (d.model.pattern[layer] == 'P' || (d.model.pattern[layer] == 'E' && symbol == '-')) d.model.pattern[layer] = symbol;
      });
  }
  attempt([](Draw& d) { d.micros = 1; });
  attempt([](Draw& d) { d.micro_batch_size = 1; });
  attempt([](Draw& d) { d.seq_length = (d.seq_length + 1) / 2; });
  attempt([](Draw& d) { d.packed = false; });
  attempt([](Draw& d) { d.padded = false; });
  attempt([](Draw& d) { d.source_length = (d.source_length + 1) / 2; });
  attempt([](Draw& d) { d.model.attention.relative_bias = {}; });
  attempt([](Draw& d) { d.some_ignored = false; });
  attempt([](Draw& d) { d.distinct_tokens = 0; });
  attempt([](Draw& d) { d.frozen.clear(); });
  attempt([](Draw& d) { d.model.lora = {}; });
  attempt([](Draw& d) { d.model.linear = LinearLayers::full; });
  attempt([](Draw& d) { d.fp8 = Fp8Recipe::none; });
  attempt([](Draw& d) { d.model.attention.output_gate = false; });
  attempt([](Draw& d) { d.model.moe.shared_gate = false; });
  attempt([](Draw& d) { d.model.moe.latent_size = 0; });
  attempt([](Draw& d) { d.model.attention.qk_norm = d.model.attention.qk_norm_all_heads = false; });
  attempt([](Draw& d) { d.model.lora.also.clear(); });
  attempt([](Draw& d) { d.recompute.by_type.clear(); });
  attempt([](Draw& d) { d.recompute = {}; });
  attempt([](Draw& d) { d.offload = {}; });
  attempt([](Draw& d) { d.terms = {}; });
  attempt([](Draw& d) { d.ahead.depths = 0; });
  attempt([](Draw& d) { d.ahead.depths = std::min<Index>(d.ahead.depths, 1); });
  attempt([](Draw& d) { d.ahead.pattern = d.ahead.pattern.substr(0, 1); });
  attempt([](Draw& d) { std::fill(d.ahead.pattern.begin(), d.ahead.pattern.end(), '-'); });
  attempt([](Draw& d) { d.ordered = false; });
  attempt([](Draw& d) { d.masked = d.ordered = false; });
  attempt([](Draw& d) { d.beta = 0; });
  attempt([](Draw& d) { d.classes = 0; });
  attempt([](Draw& d) { d.tagged = true; });
  attempt([](Draw& d) { d.pool = Pool::first; });
  attempt([](Draw& d) { d.front = ClassFront::usual; });
  attempt([](Draw& d) { d.masked_fraction = 1; });
  attempt([](Draw& d) { d.head_bias = true; });
  attempt([](Draw& d) { d.model.norm = NormType::rms; });
  attempt([](Draw& d) { d.model.embed_norm = false; });
  attempt([](Draw& d) { d.model.dropout = {}; });
  for (double DropoutConfig::*p : {&DropoutConfig::embedding, &DropoutConfig::residual, &DropoutConfig::attention, &DropoutConfig::head})
    attempt([&](Draw& d) { d.model.dropout.*p = 0; });
  attempt([](Draw& d) { d.model.attention.sinks = false; });
  attempt([](Draw& d) { d.model.moe.capacity_factor = 0; });
  attempt([](Draw& d) { d.model.moe.drop_policy = DropPolicy::position; });
  attempt([](Draw& d) { d.model.moe.expert_bias = false; });
  attempt([](Draw& d) { d.model.moe.router_bias = false; });
  attempt([](Draw& d) { d.model.moe.activation = d.model.mlp.activation = Activation::silu; });
  attempt([](Draw& d) { d.model.norm_placement = NormPlacement::before; });
  attempt([](Draw& d) { d.model.norm_offset = 0; });
  attempt([](Draw& d) { d.model.type_vocab_size = 0; });
  attempt([](Draw& d) { d.model.attention.causal = true; });
  attempt([](Draw& d) { d.model.tie_word_embeddings = false; });
  attempt([](Draw& d) { d.model.pad_token_id = -1; });
  attempt([](Draw& d) { d.model.positions = 0; });
  attempt([](Draw& d) { d.model.mamba.norm = SsmNorm::none; });
  attempt([](Draw& d) { d.model.attention.bias = d.model.attention.qkv_bias = d.model.mlp.bias = false; });
  attempt([](Draw& d) { d.model.attention.rope_scaling = {}; });
  attempt([](Draw& d) { d.model.window.rope_theta = 0; });
  attempt([](Draw& d) { d.model.attention.soft_cap = d.model.lm_head_soft_cap = 0; });
  attempt([](Draw& d) { d.model.mamba.in_bias = d.model.mamba.out_bias = d.model.mamba.conv_bias = false; });
  attempt([](Draw& d) { d.model.latent.bias = false; });
  attempt([](Draw& d) { d.model.latent.q_rank = 0; });
  attempt([](Draw& d) { d.model.latent.num_heads = 1; });
  attempt([](Draw& d) { d.model.moe.bias_update_rate = 0; });
  attempt([](Draw& d) { d.model.moe.bias = false, d.model.moe.bias_update_rate = 0; });
  attempt([](Draw& d) { d.model.moe.aux_loss = 0; });
  attempt([](Draw& d) { d.model.moe.z_loss = 0; });
  attempt([](Draw& d) { d.model.moe.shared_intermediate_size = 0, d.model.moe.shared_gate = false; });
  attempt([](Draw& d) { d.model.moe.routing.groups = d.model.moe.routing.top_groups = 1; });
  attempt([](Draw& d) { d.model.moe.routing.top_k = 1; });
  attempt([](Draw& d) { d.model.moe.routing = {Routing::softmax, 1}, d.model.moe.experts = 2; });
  for (const int tensor : {2, 3, 4, 6})
    attempt([&](Draw& d) {
      if (tensor < d.tensor) d.tensor = tensor, d.permutation.clear();
    });
  const auto fewer = [&](auto&& member) {
    for (const Index smaller : {Index(1), Index(2), Index(3), Index(4)})
      attempt([&](Draw& d) {
        if (smaller < member(d)) member(d) = smaller;
      });
  };
  fewer([](Draw& d) -> Index& { return d.model.attention.num_kv_heads; });
  fewer([](Draw& d) -> Index& { return d.model.attention.num_heads; });
  fewer([](Draw& d) -> Index& { return d.model.window.size; });
  fewer([](Draw& d) -> Index& { return d.model.mamba.num_groups; });
  fewer([](Draw& d) -> Index& { return d.model.mamba.num_heads; });
  fewer([](Draw& d) -> Index& { return d.model.mamba.head_dim; });
  fewer([](Draw& d) -> Index& { return d.model.mamba.state_size; });
  fewer([](Draw& d) -> Index& { return d.model.delta.num_key_heads; });
  fewer([](Draw& d) -> Index& { return d.model.delta.num_heads; });
  fewer([](Draw& d) -> Index& { return d.model.mlp.intermediate_size; });
  fewer([](Draw& d) -> Index& { return d.model.moe.intermediate_size; });
  attempt([](Draw& d) { d.model.attention.head_dim = 2; });
  attempt([](Draw& d) { d.model.attention.head_dim = std::min<Index>(d.model.attention.head_dim, 4); });
  return all;
}

}  // namespace gyr::testing
