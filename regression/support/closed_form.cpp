// SPDX-License-Identifier: BSD-3-Clause
// Symbols in this file: L layers of this stage, R rows of a micro-batch, D hidden width, t tensor-parallel ranks.
#include "regression/support/closed_form.hpp"

#include <cmath>
#include <numeric>

#include "modules/objectives/classes.hpp"
#include "modules/objectives/masking.hpp"
#include "modules/objectives/multi_token.hpp"

namespace gyr::testing {

namespace {

constexpr Index head_block = 256;  // rows of logits that the head computes at a time

void add(Ledger& ledger, const std::string& communicator, Operation op, Index calls, Index bytes_each) {
  if (calls == 0) return;
  Traffic& entry = ledger[{communicator, op}];
  entry.calls += calls;
  entry.bytes += calls * bytes_each;
}

// Symbols of layers in which a part of the rows of GEMM outputs can be recomputed (memo policy).
const std::string single_rows = "PM*W-LBG";

// Position of one rank in the layout, and the configuration that it computes with.
struct Place {
  EngineConfig config;
  int copies, pipeline, context, tensor;  // sizes of the axes; copies: number of ranks with the same weights
  std::string copies_name;                // name of the communicator of these copies
  SequenceLayout tokens, source;          // token layout of a micro-batch on this rank: decoder or only stack; encoder input
  bool sequence;
  Shard shard;
  Index bucket_bytes;
  int stage, chunks;               // coordinate on the pipeline axis; chunks (virtual stages) per rank
  std::vector<int> parts;          // parts (layers, embedding, head) of each chunk
  std::string layers;              // symbols of the layers on this rank
  std::string encoder;             // symbols of the encoder layers on this rank
  std::string memo, encoder_memo;  // per layer of `layers` and of `encoder`: 'a' if GEMM outputs of a part of its rows are recomputed, otherwise '-'
  std::string of_head;             // symbols of the head's own layers (multi-token prediction), which are never recomputed
  Index narrow, wide;              // bytes of the scalar type and of its accumulator type
  int attention_ranks, tensor_rank;  // tensor-parallel ranks of attention (0: mixers are not split among ranks); coordinate on the tensor axis
  int expert, expert_rank;           // number of expert-parallel ranks, and the index of this rank among them
  // Layers R (retrieval): the first one of the model, and the layer after the last one; 0: there is none.
  Index first_reader = 0, readers_end = 0;
  std::vector<Index> borders = {};  // of this rank's chunks within the model: the layer after each
  // True if this rank has the first layer R, if a part of its activations is offloaded, and if this place is that of its encoder.
  bool has_first_reader = false, partly_offloaded = false, of_neighbours = false;
  Index source_width = 0;  // of the rows that layers R, or the layers X of their encoder, attend to

  template <class T>
  static Place of(const EngineConfig& c, const Layout& layout, int position) {
    const int stage = layout.coordinate(position, Axis::pipeline);
    const int pipeline = layout.size(Axis::pipeline), chunks = int(layout.stages.size()) / pipeline;
    std::string layers, encoder, memo, encoder_memo;
    std::vector<int> parts;
    const Index border = layers_of_encoder(c.model);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Span span = layout.stages[chunk * pipeline + stage];
      layers += c.model.pattern.substr(span.first, span.size());
      if (span.first < border) encoder += c.model.pattern.substr(span.first, std::min(span.last, border) - span.first);
      const Index stay = span.last == c.model.layers() ? 2 : 0;
      for (Index layer = span.first; layer < span.last; ++layer) {
        const bool again =
            c.offload.on && c.offload.alpha < 1 && layer + stay < span.last && single_rows.find(c.model.pattern[layer]) != std::string::npos;
        memo += again ? 'a' : '-';
        if (layer < border) encoder_memo += memo.back();
      }
      parts.push_back(int(span.size()) + (span.first == 0) + (span.last == c.model.layers()));
    }
    Place p{c,
            layout.size(token_axes),
            pipeline,
            layout.size(Axis::context),
            layout.size(Axis::tensor),
            layout.size(Axis::context) > 1 ? "data-context" : "data",
            layout.sequences(position, c.micro_batch_size, c.seq_length),
            c.source_length > 0 ? layout.sequences(position, c.micro_batch_size, c.source_length) : SequenceLayout(),
            layout.sequence,
            layout.zero_shard(),
            layout.bucket_bytes,
            stage,
            chunks,
            parts,
            layers,
            encoder,
            memo,
            encoder_memo,
            stage == pipeline - 1 ? c.model.objective->head_layers() : "",
            Index(sizeof(T)),
            std::is_same_v<T, double> ? 8 : 4,
            layout.attention_ranks,
            layout.coordinate(position, Axis::tensor),
            layout.expert,
            layout.coordinate(position, token_axes) % layout.expert};
    p.find_layers_of_retrieval(layout);
    return p;
  }
  // Sets what depends on layers R. The source has k neighbours of 2 m tokens for each chunk of m tokens.
  void find_layers_of_retrieval(const Layout& layout) {
    const std::string& pattern = model().pattern;
    if (pattern.find('R') == std::string::npos) return;
    first_reader = Index(pattern.find('R')), readers_end = Index(pattern.rfind('R')) + 1;
    source = {tokens.rows() / model().retrieval.chunk * model().retrieval.neighbours, 2 * model().retrieval.chunk};
    source_width = encoder_width();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Span span = layout.stages[std::size_t(chunk * pipeline + stage)];
      if (span.first > 0) borders.push_back(span.first);
      if (span.last < model().layers()) borders.push_back(span.last);
      if (first_reader < span.first || first_reader >= span.last) continue;
      has_first_reader = true;
      partly_offloaded = config.offload.on && config.offload.alpha < 1 && (span.last < model().layers() || first_reader + 2 < span.last);
    }
  }
  bool reads_neighbours() const { return readers_end > 0; }
  Index encoder_width() const { return model().encoder ? model().encoder->hidden_size : model().hidden_size; }
  // True if the neighbours have a table of their own.
  bool has_table_of_neighbours() const { return reads_neighbours() && encoder_width() != model().hidden_size; }
  // The encoder's view: only encoder layers, with the encoder's embedding if it is on this rank. That of neighbours is recomputed with the
  // first layer R, and its layers * and - recompute rows that were not offloaded.
  Place reading() const {
    Place p = *this;
    p.layers = encoder, p.memo = encoder_memo, p.of_head.clear(), p.tokens = source;
    p.stage = first() ? 0 : 1, p.pipeline = 3;
    if (!reads_neighbours()) return p;
    p.of_neighbours = true;
    p.layers = has_first_reader ? model().retrieval.encoder : "";
    p.memo.clear();
    for (const char symbol : p.layers) p.memo += partly_offloaded && symbol != 'X' ? 'a' : '-';
    p.config.recompute = {};
    p.config.recompute.all = config.recompute.of('R');
    p.source_width = model().hidden_size;
    if (const auto& own = model().encoder) {
      ModelConfig& m = p.config.model;
      m.hidden_size = own->hidden_size, m.norm = own->norm, m.attention = own->attention, m.mlp = own->mlp;
    }
    return p;
  }
  // The layers with their weights: layers R have those of cross-attention.
  Place with_cross_attention() const {
    Place p = *this;
    std::replace(p.layers.begin(), p.layers.end(), 'R', 'X');
    return p;
  }
  // True if the second forward of the first layer R gathers the rows that its encoder reads, though it does not compute its queries again.
  bool encodes_again() const {
    const Recompute policy = config.recompute.of('R');
    const bool splits = partly_offloaded && model().retrieval.encoder.find_first_of("*-") != std::string::npos;
    return has_first_reader && (policy ? *policy < RecomputeCost::gemm : splits);
  }
  // Rows of encoded neighbours of the chunks before this rank's blocks of tokens, in all sequences.
  Index neighbours_before_blocks() const {
    const Index m = model().retrieval.chunk, blocks = tokens.order == SequenceOrder::zigzag ? 2 : 1;
    if (!reads_neighbours() || context == 1 || m == 1) return 0;
    return tokens.batch * (blocks - (tokens.rank == 0 ? 1 : 0)) * model().retrieval.neighbours * 2 * m;
  }
  // The decoder's view: all layers except the encoder's.
  Place writing() const {
    Place p = *this;
    for (const char symbol : encoder) {  // encoder layers come first in each chunk
      const std::size_t at = p.layers.find(symbol);
      p.layers.erase(at, 1), p.memo.erase(at, 1);
    }
    return p;
  }
  Index bias_bytes() const { return model().attention.relative_bias.buckets * std::max<Index>(1, model().attention.num_heads / tensor) * wide; }
  int expert_replicas() const { return copies / expert; }
  Index experts_here() const { return model().moe.experts / expert; }
  bool first() const { return stage == 0; }
  bool last() const { return stage == pipeline - 1; }
  const ModelConfig& model() const { return config.model; }
  bool has(std::string_view objective) const { return model().objective->name() == objective; }
  bool masked() const { return has("mlm"); }
  // True if the objective pools the mean over all tokens of a text.
  bool pools() const { return pool_of(*model().objective) == Pool::mean; }
  // True if the head has a dense layer of hidden_size x hidden_size before the output matrix.
  bool dense() const { return masked() || has("classify") || transforms(); }
  bool dense_bias() const {
    return masked() ? masking_of(*model().objective)->head_bias : front_of(*model().objective) != ClassFront::transform_no_bias;
  }
  // True if a norm follows that dense layer.
  bool transforms() const { return masked() || front_of(*model().objective) != ClassFront::usual; }
  // True if this rank has a sentence-order head: a dense layer and two output columns.
  bool predicts_sentence_order() const { return last() && model().objective->predicts_sentence_order(); }
  Index order_columns_here() const { return (2 + tensor - 1) / tensor; }
  Index columns_here() const {
    const Index classes = Index(model().objective->classes().size());
    return ((classes > 0 ? classes : model().vocab_size) + tensor - 1) / tensor;
  }
  Index reduced() const { return config.reduce_dtype ? size_of(*config.reduce_dtype) : wide; }
  Index rows() const { return tokens.rows(); }
  // Rows of the residual stream that a rank keeps: with sequence parallelism, equal numbers on all ranks with padding
  // at the end.
  Index kept_rows() const { return sequence ? (rows() + tensor - 1) / tensor : rows(); }
  // Rows that may have labels.
  Index scored_rows() const { return std::min(rows(), tokens.batch * model().objective->most_labels(tokens.full_length())); }
  // Upper bound of (token, expert) pairs that are routed, given the capacity of the experts.
  Index slots() const {
    const MoeConfig& c = model().moe;
    const Index all = rows() * c.routing.top_k, unsharded = tokens.full_length();
    if (c.capacity_factor == 0) return all;
    const double even = double(unsharded * c.routing.top_k) / double(c.experts);
    const Index capacity = std::max<Index>(1, Index(std::ceil(c.capacity_factor * even)));
    return std::min(all, tokens.batch * c.experts * std::min(capacity, tokens.seq_length));
  }
  Index kept_bytes() const { return kept_rows() * model().hidden_size * narrow; }
  Index tokens_here() const { return (model().vocab_size + tensor - 1) / tensor; }
  bool computes_attention() const { return attention_ranks == 0 || tensor_rank < attention_ranks; }
  bool computes_ssm() const { return attention_ranks == 0 || tensor_rank >= attention_ranks; }
  Index count(const char* symbols) const {
    const std::string all = layers + of_head;
    return std::count_if(all.begin(), all.end(), [&](char c) { return std::string(symbols).find(c) != std::string::npos; });
  }
  // Depths of multi-token prediction that this rank computes.
  Index depths() const { return last() ? model().objective->depths() : 0; }
  // Upper bound of text pairs (preference objective) of a micro-batch on this rank.
  Index most_pairs() const { return last() ? tokens.batch * model().objective->most_pairs(tokens.full_length()) : 0; }
  // Sums per row of the softmax: that of the exponentials and the label's logit, one for label smoothing, one for the
  // entropy.
  Index softmax_sums() const { return model().loss_terms.entropy > 0 ? 4 : model().loss_terms.smoothing > 0 ? 3 : 2; }
  // Number of these layers whose forward is recomputed at a cost of at least `least`, or whose GEMM outputs were kept
  // only for a part of the rows.
  Index count(const char* symbols, RecomputeCost least) const {
    Index count = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const char c = layers[i];
      const bool dropped = config.recompute.of(c) && *config.recompute.of(c) >= least;
      count += std::string(symbols).find(c) != std::string::npos && (dropped || (least <= RecomputeCost::gemm && memo[i] == 'a'));
    }
    return count;
  }
};

// Units (heads, groups, channels) sharded over ranks: units per rank, width of the rank's part of each unit, and ranks
// that hold the same part.
struct Part {
  Index units, width;
  int replicas;
};
Part divided_units(int ranks, Index units) { return {std::max<Index>(1, units / ranks), 0, int(std::max<Index>(1, ranks / units))}; }
Part split_units(int ranks, Index units, Index width) {
  const Part unsharded = divided_units(ranks, units);
  const int parts = std::gcd(int(width), unsharded.replicas);
  return {unsharded.units, width / parts, unsharded.replicas / parts};
}

// Channels of each branch of a layer that a rank holds, and the number of ranks that hold the same ones.
struct Shards {
  Index d, q, k, out, num_heads, inner, group, channels, projected, f;
  int q_replicas, k_replicas, out_replicas, head_replicas, inner_replicas, group_replicas, f_replicas;
  Part expert, shared;  // inner channels of each routed expert, and of the shared expert
  // Gated delta net: heads, value channels of each head, and key heads.
  Part delta_heads, delta_values, delta_keys;
  Index delta_inner, delta_key, delta_channels;  // channels of the values, of q or k, and of the convolution

  Shards(const ModelConfig& m, int ranks) {
    d = m.hidden_size;
    const Part queries = divided_units(ranks, m.attention.num_heads), keys = divided_units(ranks, m.attention.num_kv_heads);
    const Part values = split_units(ranks, m.attention.num_heads, m.attention.head_dim);
    q = queries.units * m.attention.head_dim, q_replicas = queries.replicas;
    k = keys.units * m.attention.head_dim, k_replicas = keys.replicas;
    out = values.units * values.width, out_replicas = values.replicas;
    const Part ssm = divided_units(ranks, m.mamba.num_heads), x = split_units(ranks, m.mamba.num_heads, m.mamba.head_dim),
               bc = divided_units(ranks, m.mamba.num_groups);
    num_heads = ssm.units, head_replicas = ssm.replicas;
    inner = x.units * x.width, inner_replicas = x.replicas;
    group = bc.units * m.mamba.state_size, group_replicas = bc.replicas;
    channels = inner + 2 * group, projected = inner + channels + num_heads;
    delta_heads = divided_units(ranks, m.delta.num_heads), delta_values = split_units(ranks, m.delta.num_heads, m.delta.head_dim);
    delta_keys = divided_units(ranks, m.delta.num_key_heads);
    delta_inner = delta_values.units * delta_values.width, delta_key = delta_keys.units * m.delta.key_dim;
    delta_channels = delta_inner + 2 * delta_key;
    const Part mlp = divided_units(ranks, m.mlp.intermediate_size);
    f = mlp.units, f_replicas = mlp.replicas;
    expert = divided_units(ranks, m.moe.intermediate_size);
    shared = m.moe.shared_intermediate_size > 0 ? divided_units(ranks, m.moe.shared_intermediate_size) : Part{0, 0, 1};
  }
};

// A group of layers whose mixer is sharded over the same ranks, of which this rank is one.
struct Mixers {
  const char* symbols;
  int ranks;
  std::string name;  // name of the communicator of these ranks

  Shards shards(const Place& p) const { return {p.model(), ranks}; }
  std::string block(int size) const { return size == ranks ? name : fmt::format("{}/{}", name, size); }
};
std::vector<Mixers> mixers_of(const Place& p, const char* one_mixer, const char* all, bool mine, int team, const char* name) {
  if (p.attention_ranks == 0) return {{all, p.tensor, "tensor"}};
  std::vector<Mixers> list{{one_mixer, p.tensor, "tensor"}};
  if (mine) list.push_back({"P", team, name});
  return list;
}
std::vector<Mixers> ssm_of(const Place& p) { return mixers_of(p, "M", "PM", p.computes_ssm(), p.tensor - p.attention_ranks, "ssm"); }
std::vector<Mixers> attention_of(const Place& p) { return mixers_of(p, "*WB", "P*WB", p.computes_attention(), p.attention_ranks, "attention"); }

// Elements of matrices (narrow), and of vectors and filters (wide), which are stored in the accumulator's precision.
struct Run {
  FlatRun narrow, wide;
};
// Weights of a part by sharding: over all tensor-parallel ranks, over a mixer team, and over expert-parallel ranks.
struct PartRun {
  Run all, team, experts;  // expert weights that are distributed over expert-parallel ranks
};

void mamba_weights(const MambaConfig& c, const Shards& s, Run& x) {
  x.narrow.next(s.projected * s.d);
  if (c.in_bias) x.wide.next(s.projected);
  x.wide.next(s.channels * c.conv_kernel);
  if (c.conv_bias) x.wide.next(s.channels);
  for (int vector = 0; vector < 3; ++vector) x.wide.next(s.num_heads);
  if (c.norm != SsmNorm::none) x.wide.next(s.inner);
  x.narrow.next(s.d * s.inner);
  if (c.out_bias) x.wide.next(s.d);
}
void delta_weights(const DeltaConfig& c, const Shards& s, Run& x) {
  x.narrow.next(s.delta_key * s.d), x.narrow.more(s.delta_key * s.d), x.narrow.more(s.delta_inner * s.d), x.narrow.more(s.delta_inner * s.d);
  for (int scalar = 0; scalar < 2; ++scalar) x.narrow.more(s.delta_heads.units * s.d);
  x.wide.next(s.delta_channels * c.conv_kernel);
  for (int vector = 0; vector < 2; ++vector) x.wide.next(s.delta_heads.units);
  x.wide.next(c.head_dim);
  x.narrow.next(s.d * s.delta_inner);
}
void attention_weights(const AttentionConfig& c, const Shards& s, Run& x) {
  x.narrow.next(s.q * s.d), x.narrow.more(s.k * s.d), x.narrow.more(s.k * s.d);
  if (c.output_gate) x.narrow.next(s.out * s.d);
  x.narrow.next(s.d * s.out);
  if (c.bias || c.qkv_bias) x.wide.next(s.q), x.wide.more(s.k), x.wide.more(s.k);
  if (c.bias) x.wide.next(s.d);
  if (c.qk_norm) x.wide.next(c.qk_norm_all_heads ? s.q : c.head_dim), x.wide.next(c.qk_norm_all_heads ? s.k : c.head_dim);
  if (c.sinks) x.wide.next(s.q / c.head_dim);
}
void cross_attention_weights(const AttentionConfig& c, const Shards& s, Index source, Run& x) {
  x.narrow.next(s.q * s.d), x.narrow.next(s.k * source), x.narrow.more(s.k * source), x.narrow.next(s.d * s.out);
  if (c.bias || c.qkv_bias) x.wide.next(s.q), x.wide.next(s.k), x.wide.more(s.k);
  if (c.bias) x.wide.next(s.d);
}
void relative_bias_weights(const AttentionConfig& c, const Shards& s, Run& x) {
  if (c.relative_bias.buckets > 0) x.wide.next(c.relative_bias.buckets * s.q / c.head_dim);
}
void mlp_weights(const MlpConfig& c, const Shards& s, Run& x) {
  x.narrow.next(s.f * s.d);
  if (c.gated) x.narrow.more(s.f * s.d);
  x.narrow.next(s.d * s.f);
  if (c.bias) x.wide.next(s.f);
  if (c.bias && c.gated) x.wide.more(s.f);
  if (c.bias) x.wide.next(s.d);
}
void norm_weights(const ModelConfig& m, Run& x) {
  x.wide.next(m.hidden_size);
  if (m.norm == NormType::layer) x.wide.next(m.hidden_size);
}
// Norms of a residual branch.
void residual_norm_weights(const ModelConfig& m, Run& x) {
  norm_weights(m, x);
  if (m.norm_placement == NormPlacement::both) norm_weights(m, x);  // otherwise one, before the branch or after it
}
// Channels of the rows that routed experts read.
Index expert_width(const ModelConfig& m) { return m.moe.latent_size > 0 ? m.moe.latent_size : m.hidden_size; }
void moe_weights(const Place& p, const Shards& s, PartRun& x) {
  const MoeConfig& c = p.model().moe;
  x.all.narrow.next(c.experts * s.d);
  if (c.router_bias) x.all.wide.next(c.experts);
  for (int projection = 0; c.latent_size > 0 && projection < 2; ++projection) x.all.narrow.next(c.latent_size * s.d);
  const auto block = [&](Run& x, Index f, Index d) {
    x.narrow.next(f * d), x.narrow.more(f * d), x.narrow.next(d * f);
    if (c.expert_bias) x.wide.next(f), x.wide.more(f), x.wide.next(d);
  };
  for (Index e = 0; e < p.experts_here(); ++e) block(p.expert > 1 ? x.experts : x.all, s.expert.units, expert_width(p.model()));
  if (c.shared_gate) x.all.narrow.next(s.d);
  if (s.shared.units > 0) block(x.all, s.shared.units, s.d);
}
void latent_weights(const ModelConfig& m, int ranks, Run& x) {
  const LatentConfig& c = m.latent;
  const Index heads = divided_units(ranks, c.num_heads).units, shared = c.kv_rank + c.rope_dim, q = heads * c.qk_head_dim();
  x.narrow.next(c.q_rank > 0 ? c.q_rank * m.hidden_size : shared * m.hidden_size);
  if (c.q_rank > 0) x.narrow.more(shared * m.hidden_size);
  if (c.bias) x.wide.next(c.q_rank > 0 ? c.q_rank : shared);
  if (c.bias && c.q_rank > 0) x.wide.more(shared);
  if (c.q_rank > 0) x.wide.next(c.q_rank);
  x.wide.next(c.kv_rank);
  x.narrow.next(q * (c.q_rank > 0 ? c.q_rank : m.hidden_size)), x.narrow.next(heads * (c.head_dim + c.v_head_dim) * c.kv_rank);
  x.narrow.next(m.hidden_size * heads * c.v_head_dim);
  if (c.bias) x.wide.next(m.hidden_size);
}
void layer_weights(const Place& p, char symbol, bool has_norm, const Shards& s, PartRun& x) {
  const ModelConfig& m = p.model();
  const auto has = [&](const Mixers& mixers) { return std::string(mixers.symbols).find(symbol) != std::string::npos; };
  Run& of_mixers = p.attention_ranks > 0 && symbol == 'P' ? x.team : x.all;
  if (symbol == encoder_end) return norm_weights(m, x.all), relative_bias_weights(m.attention, s, x.all);
  if (has_norm) residual_norm_weights(m, x.all);
  if (symbol == 'X' || symbol == 'R') cross_attention_weights(m.attention, s, p.reads_neighbours() ? p.source_width : s.d, x.all);
  for (const Mixers& mixers : ssm_of(p))
    if (has(mixers)) mamba_weights(m.mamba, mixers.shards(p), of_mixers);
  for (const Mixers& mixers : attention_of(p))
    if (has(mixers)) attention_weights(m.attention, mixers.shards(p), of_mixers);
  if (symbol == 'P') residual_norm_weights(m, x.all);
  if (symbol == 'P' || symbol == '-' || symbol == 'B') mlp_weights(m.mlp, s, x.all);
  if (symbol == 'E') moe_weights(p, s, x);
  if (symbol == 'L') latent_weights(m, p.tensor, x.all);
  if (symbol == 'G') delta_weights(m.delta, s, x.all);
}

// Weights of multi-token prediction modules: per depth three norms, a projection of both inputs, and the module's
// layers.
void module_weights(const Place& p, const Shards& s, PartRun& x) {
  const std::size_t each = p.depths() > 0 ? p.of_head.size() / std::size_t(p.depths()) : 0;
  for (Index k = 0; k < p.depths(); ++k) {
    for (int norm = 0; norm < 3; ++norm) norm_weights(p.model(), x.all);
    x.all.narrow.next((s.d + p.tensor - 1) / p.tensor * 2 * s.d);
    for (const char symbol : p.of_head.substr(std::size_t(k) * each, each)) layer_weights(p, symbol, true, s, x);
  }
}

// The encoder of neighbours, and their embedding if its width is not that of the text.
void encoder_weights(const Place& encoder, PartRun& x) {
  for (const char symbol : encoder.layers) layer_weights(encoder, symbol, true, Shards(encoder.model(), encoder.tensor), x);
}
void table_of_neighbours(const Place& p, Run& x) {
  const ModelConfig& m = p.model();
  const Index width = p.encoder_width();
  x.narrow.next(p.tokens_here() * width);
  if (m.positions > 0) x.narrow.next((m.positions + p.tensor - 1) / p.tensor * width);
  if (m.type_vocab_size > 0) x.wide.next(m.type_vocab_size * width);
}

// A bucket of weights that are reduced, updated and gathered together: elements of each type, padded to equal shards.
struct BucketSizes {
  bool unsharded = false;  // true for a matrix that is shared between stages (tied or MTP embedding)
  Index narrow = 0, wide = 0, team_narrow = 0, team_wide = 0, experts_narrow = 0, experts_wide = 0;
  Index common() const { return narrow + wide + team_narrow + team_wide; }
  Index experts() const { return experts_narrow + experts_wide; }
  Index size() const { return common() + experts(); }
};

// All buckets of a rank, and for each part the bucket that occupies a buffer when the part runs; -1: none.
struct Buckets {
  std::vector<BucketSizes> sizes;
  std::vector<int> of_part;
};

Buckets buckets_of(const Place& p) {
  const ModelConfig& m = p.model();
  const Shards s(m, p.tensor);
  const bool separate = p.bucket_bytes == part_by_part, tied = m.tie_word_embeddings, mixed = p.narrow != p.wide;
  const bool both_stages = tied || m.objective->depths() > 0;  // the first and the last stage both have the embedding table
  Buckets all;
  int open_bucket = -1;  // bucket to which further parts are added
  const auto add = [&](PartRun x, bool unsharded) {
    for (Run* run : {&x.all, &x.team, &x.experts}) {
      run->narrow.align(), run->wide.align();
      if (!mixed) run->narrow.extent += run->wide.extent, run->wide.extent = 0;
    }
    if (unsharded || separate || open_bucket < 0) all.sizes.push_back({unsharded});
    if (!unsharded && (separate || open_bucket < 0)) open_bucket = int(all.sizes.size()) - 1;
    BucketSizes& bucket = unsharded ? all.sizes.back() : all.sizes[open_bucket];
    bucket.narrow += x.all.narrow.extent, bucket.wide += x.all.wide.extent;
    bucket.team_narrow += x.team.narrow.extent, bucket.team_wide += x.team.wide.extent;
    bucket.experts_narrow += x.experts.narrow.extent, bucket.experts_wide += x.experts.wide.extent;
    return unsharded ? -1 : open_bucket;
  };
  if (p.first()) {
    PartRun table, rest;
    table.all.narrow.next(p.tokens_here() * s.d);
    PartRun& other_part = both_stages ? rest : table;
    if (m.positions > 0) other_part.all.narrow.next((m.positions + p.tensor - 1) / p.tensor * s.d);
    if (m.type_vocab_size > 0) other_part.all.wide.next(m.type_vocab_size * s.d);
    if (m.has_embed_norm()) norm_weights(m, other_part.all);
    relative_bias_weights(m.attention, s, other_part.all);
    const bool own_table = p.has_table_of_neighbours();
    if (own_table) table_of_neighbours(p, other_part.all);
    all.of_part.push_back(add(table, both_stages));
    if (both_stages && (m.positions > 0 || m.type_vocab_size > 0 || m.has_embed_norm() || m.attention.relative_bias.buckets > 0 || own_table))
      all.of_part.back() = add(rest, false);
  }
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    PartRun layer;
    const bool first = i == 0 && p.first();
    layer_weights(p, p.layers[i], !first || !m.embed_norm, s, layer);
    if (p.has_first_reader && i == p.layers.find('R')) encoder_weights(p.reading(), layer);
    all.of_part.push_back(add(layer, false));
  }
  if (p.last()) {
    PartRun head, matrix;
    if (m.norm_placement != NormPlacement::after) norm_weights(m, head.all);
    if (p.dense()) head.all.narrow.next(s.d * s.d);
    if (p.dense() && p.dense_bias()) head.all.wide.next(s.d);
    if (p.transforms()) norm_weights(m, head.all);
    if (p.predicts_sentence_order()) {
      head.all.narrow.next(s.d * s.d), head.all.wide.next(s.d);
      head.all.wide.next(p.order_columns_here()), head.all.narrow.next(p.order_columns_here() * s.d);
    }
    if (p.masked() || !m.objective->classes().empty()) head.all.wide.next(p.columns_here());
    module_weights(p, s, head);
    (tied ? matrix : head).all.narrow.next(p.columns_here() * s.d);
    // the head consists only of the output matrix
    const bool empty = tied && m.norm_placement == NormPlacement::after && !p.dense() && p.depths() == 0;
    all.of_part.push_back(empty ? all.of_part.back() : add(head, false));
    if (both_stages && !tied) matrix.all.narrow.next(p.tokens_here() * s.d);
    if (both_stages && !p.first()) add(matrix, true);
  }
  const auto pad = [&](Index& size, int parts) {
    const Index grain = 64 * (p.shard == Shard::none ? 1 : parts);
    size = (size + grain - 1) / grain * grain;
  };
  for (BucketSizes& b : all.sizes) {
    for (Index* size : {&b.narrow, &b.wide, &b.team_narrow, &b.team_wide}) pad(*size, p.copies);
    for (Index* size : {&b.experts_narrow, &b.experts_wide}) pad(*size, p.expert_replicas());
  }
  return all;
}

// Total extent of all buckets, or of the rank's shards of them if `sharded`.
Index flat_extent(const Place& p, bool sharded) {
  Index sum = 0;
  for (const BucketSizes& b : buckets_of(p).sizes) sum += sharded ? b.common() / p.copies + b.experts() / p.expert_replicas() : b.size();
  return sum;
}

// Order in which a step uses the buckets: `values` when a part computes, `gradients` when a part writes gradients. The
// head writes its gradients in its forward pass and is not needed afterwards.
struct BufferUses {
  std::vector<int> values, gradients;
};
BufferUses buffer_uses(const Place& p, const Buckets& buckets) {
  BufferUses uses;
  const auto take = [](std::vector<int>& list, int bucket) {
    if (bucket >= 0 && (list.empty() || list.back() != bucket)) list.push_back(bucket);
  };
  for (const PipelineStep& step : p.config.schedule({p.pipeline, p.chunks, p.config.micros}, p.stage)) {
    int first = 0;
    for (int chunk = 0; chunk < step.chunk; ++chunk) first += p.parts[chunk];
    const int last = first + p.parts[step.chunk];
    const bool head = p.last() && step.chunk == p.chunks - 1;
    if (step.op == Op::forward) {
      for (int part = first; part < last; ++part) take(uses.values, buckets.of_part[part]);
      if (head) take(uses.gradients, buckets.of_part[last - 1]);
    } else {
      for (int part = last - head; part-- > first;) take(uses.values, buckets.of_part[part]), take(uses.gradients, buckets.of_part[part]);
    }
  }
  return uses;
}

// Number of layers that are recomputed up to their last residual sum, which is needed only if a norm follows that sum. In the encoder of
// neighbours, the next layer needs it.
Index last_sums_again(const Place& p, const char* symbols) {
  const Index sums = p.count(symbols, RecomputeCost::sum);
  if (p.model().norm_placement != NormPlacement::before) return sums;
  return p.of_neighbours && sums > 0 ? sums - 1 : 0;
}

// Tensor-parallel traffic. Every residual branch is reduced in forward and backward, the embedding and the head's input
// gradient once. Each block of logits needs its maximum and two sums per row. With sequence parallelism, the input of
// each branch is gathered twice and the gradient of its sum once. Norm groups that span several ranks add one value per
// row in each direction. The backward pass adds one value per row and chosen expert.
void tensor_axis(const Place& p, Ledger& ledger) {
  if (p.tensor == 1) return;
  const auto reduce = [&](const std::string& name, Index calls, Index bytes) { add(ledger, name, Operation::all_reduce, calls, bytes); };
  const MambaConfig& c = p.model().mamba;
  const Index micros = p.config.micros;
  const Index residuals = 2 * p.count("P") + p.count("M*W-EBLXGR");
  const auto again = [&](const char* symbols, RecomputeCost least) { return p.count(symbols, least); };
  // In a layer that is recomputed, the inputs of its GEMMs are gathered again.
  const Index sums_again = again("P", RecomputeCost::sum) + last_sums_again(p, "PM*W-EBLXGR"),
              gathers_again =
                  2 * again("P", RecomputeCost::gemm) + again("M*W-EBLXGR", RecomputeCost::gemm) + (!p.of_neighbours && p.encodes_again());
  // A multi-token prediction module reduces its embedding, its projection, and the gradients of both inputs; like the
  // head it reduces its input gradient. With sequence parallelism it gathers both inputs twice, the gradients of
  // projection and embedding, and the head's input. The sentence-order head gathers rows and reduces the gradient like
  // the main head.
  const Index sums_ahead = 5 * p.depths() + p.predicts_sentence_order(), gathers_ahead = 7 * p.depths() + p.predicts_sentence_order();
  if (p.sequence) {
    add(ledger, "tensor", Operation::reduce_scatter, micros * (2 * residuals + sums_again + p.first() + p.last() + sums_ahead),
        p.tensor * p.kept_bytes());
    add(ledger, "tensor", Operation::all_gather, micros * (3 * residuals + gathers_again + p.first() + p.last() + gathers_ahead), p.kept_bytes());
    if (p.pools() && p.last()) add(ledger, "tensor", Operation::all_gather, 2 * micros, p.kept_bytes());
  } else {
    reduce("tensor", micros * (2 * residuals + sums_again + p.first() + p.last() + sums_ahead), p.kept_bytes());
  }
  const Index sums = p.softmax_sums();
  const Index scored = micros * (1 + p.depths() + (p.most_pairs() > 0));  // rows of pairs are scored twice
  for (Index row = 0; row < p.scored_rows() && p.last(); row += head_block) {
    const Index rows = std::min(head_block, p.scored_rows() - row);
    reduce("tensor", scored, rows * p.wide);
    reduce("tensor", scored, sums * rows * p.wide);
  }
  for (Index row = 0; row < p.rows() && p.predicts_sentence_order(); row += head_block)
    for (const Index values_per_row : {1, 2}) reduce("tensor", micros, values_per_row * std::min(head_block, p.rows() - row) * p.wide);
  reduce("tensor", micros * p.count("E"), p.rows() * p.model().moe.routing.top_k * p.wide);
  if (p.model().moe.shared_gate) reduce("tensor", micros * p.count("E"), p.rows() * p.wide);
  if (const Part heads = divided_units(p.tensor, p.model().delta.num_heads); heads.replicas > 1)  // the gated norm of a head
    reduce(Mixers{"G", p.tensor, "tensor"}.block(heads.replicas), micros * (2 * p.count("G") + again("G", RecomputeCost::sum)),
           p.rows() * heads.units * p.wide);
  for (const Mixers& ssm : ssm_of(p)) {
    const Part groups = divided_units(ssm.ranks, c.num_groups);
    if (c.norm != SsmNorm::none && groups.replicas > 1)
      reduce(ssm.block(groups.replicas), micros * (2 * p.count(ssm.symbols) + again(ssm.symbols, RecomputeCost::sum)),
             p.rows() * groups.units * p.wide);
  }
  for (const Mixers& attention : attention_of(p))  // squares of queries and of keys, and their dot products in the backward pass
    if (p.model().attention.qk_norm_all_heads && attention.ranks > 1)
      reduce(attention.name, micros * (2 * p.count(attention.symbols) + again(attention.symbols, RecomputeCost::sum)), 2 * p.rows() * p.wide);
}

// Calls layer(mixers, sections) for the linear layers of each kind of branch. `sections`: for each of its column-parallel GEMMs, the number
// of parts of the weight that have a scale of their own in ternary layers. One row-parallel GEMM follows.
template <class Body>
void for_linear_layers(const Place& p, const Body& layer) {
  for (const Mixers& ssm : ssm_of(p)) layer(ssm, std::vector<Index>{5});
  for (const Mixers& attention : attention_of(p))
    layer(attention, p.model().attention.output_gate ? std::vector<Index>{3, 1} : std::vector<Index>{3});
  layer(Mixers{"P-B", p.tensor, "tensor"}, std::vector<Index>{p.model().mlp.gated ? 2 : 1});
  layer(Mixers{"G", p.tensor, "tensor"}, std::vector<Index>{6});
}
// Forward GEMMs of a micro-batch. Recomputed layers repeat their column-parallel GEMMs, and the row-parallel one only if a norm follows
// their residual sum or, in the first residual block of P, another block does.
Index column_parallel_gemms(const Place& p, const Mixers& m) { return p.count(m.symbols) + p.count(m.symbols, RecomputeCost::gemm); }
Index row_parallel_gemms(const Place& p, const Mixers& m) {
  const bool hybrid = std::string(m.symbols).find('P') != std::string::npos, mlp = std::string(m.symbols).find('-') != std::string::npos;
  const Index of_hybrid = hybrid && !mlp && p.model().norm_placement == NormPlacement::before ? p.count("P", RecomputeCost::sum) : 0;
  return p.count(m.symbols) + last_sums_again(p, m.symbols) + of_hybrid;
}

// Ternary layers over tensor-parallel ranks. Each GEMM of a forward sums the magnitudes of its sections, one double each. A row-parallel
// layer takes the maximum of each row once per forward, and the backward reads it.
void ternary_scales(const Place& p, Ledger& ledger) {
  if (p.model().linear == LinearLayers::full) return;
  for_linear_layers(p, [&](const Mixers& m, const std::vector<Index>& column_parallel) {
    const auto reduce = [&](Index calls, Index bytes) {
      if (m.ranks > 1) add(ledger, m.name, Operation::all_reduce, p.config.micros * calls, bytes);
    };
    for (const Index sections : column_parallel) reduce(column_parallel_gemms(p, m), sections * 8);
    reduce(row_parallel_gemms(p, m), 8);
    reduce(p.count(m.symbols) + p.count(m.symbols, RecomputeCost::sum), p.rows() * p.wide);
  });
}

// FP8 GEMMs with one scale per operand: each takes the maxima of its two operands, two floats, over tensor- and over context-parallel ranks.
// A backward has two GEMMs for each one of the forward.
void fp8_maxima(const Place& p, Ledger& ledger) {
  if (p.config.fp8 != Fp8Recipe::tensor) return;
  for_linear_layers(p, [&](const Mixers& m, const std::vector<Index>& column_parallel) {
    const Index columns = Index(column_parallel.size());
    const Index gemms = columns * column_parallel_gemms(p, m) + row_parallel_gemms(p, m) + 2 * (columns + 1) * p.count(m.symbols);
    if (m.ranks > 1) add(ledger, m.name, Operation::all_reduce, p.config.micros * gemms, 8);
    if (p.context > 1) add(ledger, "context", Operation::all_reduce, p.config.micros * gemms, 8);
  });
}

// Cross-attention over tensor-parallel ranks: gathers the encoder output (twice, with sequence parallelism) and reduces
// its gradient.
void source_over_tensor(const Place& p, Ledger& ledger) {
  if (p.tensor == 1) return;
  const Place source = p.reading();
  const Index each = p.config.micros * p.count("XR"), again = p.config.micros * p.count("XR", RecomputeCost::gemm);
  if (p.sequence) {
    add(ledger, "tensor", Operation::reduce_scatter, each, p.tensor * source.kept_bytes());
    add(ledger, "tensor", Operation::all_gather, 2 * each + again, source.kept_bytes());
  } else {
    add(ledger, "tensor", Operation::all_reduce, each, source.kept_bytes());
  }
}

// Adds the elements of the weights that several tensor-parallel ranks replicate, by the communicator of these ranks.
void add_replicas(const Place& p, std::map<std::string, Index>& elements) {
  const ModelConfig& m = p.model();
  const MambaConfig& c = m.mamba;
  const auto hold = [&](const Mixers& ranks, int copies, Index count) {
    if (copies > 1) elements[ranks.block(copies)] += p.count(ranks.symbols) * count;
  };
  for (const Mixers& ssm : ssm_of(p)) {
    const Shards s = ssm.shards(p);
    // elements per channel: of the projection; of projection and convolution
    const Index rows = s.d + c.in_bias, through = rows + c.conv_kernel + c.conv_bias;
    hold(ssm, s.inner_replicas, s.inner * (rows + through + (c.norm != SsmNorm::none) + s.d));
    hold(ssm, s.group_replicas, 2 * s.group * through);
    hold(ssm, s.head_replicas, s.num_heads * (rows + 3));
  }
  for (const Mixers& attention : attention_of(p)) {
    const Shards s = attention.shards(p);
    const bool biased = m.attention.bias || m.attention.qkv_bias;
    const bool normed = m.attention.qk_norm_all_heads;
    hold(attention, s.q_replicas, s.q * (s.d + biased + normed) + m.attention.sinks * s.q / m.attention.head_dim);
    hold(attention, s.k_replicas, 2 * s.k * (s.d + biased) + normed * s.k);
    hold(attention, s.out_replicas, (1 + m.attention.output_gate) * s.out * s.d);
    if (m.attention.qk_norm && !normed) hold(attention, attention.ranks, 2 * m.attention.head_dim);
  }
  const Mixers cross{"X", p.tensor, "tensor"};
  {
    const Shards s = cross.shards(p);
    const bool biased = m.attention.bias || m.attention.qkv_bias;
    hold(cross, s.q_replicas, s.q * (s.d + biased));
    hold(cross, s.k_replicas, 2 * s.k * ((p.reads_neighbours() ? p.source_width : s.d) + biased));
    hold(cross, s.out_replicas, s.out * s.d);
    if (s.q_replicas > 1) elements[cross.block(s.q_replicas)] += (p.first() + p.count(">")) * p.bias_bytes() / p.wide;
  }
  const Mixers axis{"P-B", p.tensor, "tensor"};
  const Shards s = axis.shards(p);
  hold(axis, s.f_replicas, s.f * (m.mlp.gated ? 3 * s.d + 2 * m.mlp.bias : 2 * s.d + m.mlp.bias));
  const Mixers routed{"E", p.tensor, "tensor"};
  hold(routed, p.tensor, 2 * m.moe.latent_size * s.d);
  hold(routed, s.expert.replicas,
       (p.shard == Shard::none ? p.experts_here() : m.moe.experts) * s.expert.units * (3 * expert_width(m) + 2 * m.moe.expert_bias));
  hold(routed, s.shared.replicas, s.shared.units * (3 * s.d + 2 * m.moe.expert_bias));
  const Mixers delta{"G", p.tensor, "tensor"};
  const Index through = s.d + m.delta.conv_kernel;  // elements of projection and convolution per channel
  hold(delta, s.delta_values.replicas, s.delta_inner * (through + 2 * s.d));
  hold(delta, s.delta_keys.replicas, 2 * s.delta_key * through);
  hold(delta, s.delta_heads.replicas, s.delta_heads.units * (2 * s.d + 2));
  hold(delta, p.tensor, m.delta.head_dim);
  const LatentConfig& l = m.latent;
  const Mixers latent{"L", p.tensor, "tensor"};
  const Part heads = divided_units(p.tensor, l.num_heads);
  const Index compressed = l.q_rank + l.kv_rank + l.rope_dim, q_from = l.q_rank > 0 ? l.q_rank : s.d;
  hold(latent, p.tensor, compressed * (s.d + l.bias) + l.q_rank + l.kv_rank);
  hold(latent, heads.replicas, heads.units * (l.qk_head_dim() * q_from + (l.head_dim + l.v_head_dim) * l.kv_rank + s.d * l.v_head_dim));
  const Index norms = m.norm_placement == NormPlacement::both ? 2 : 1;  // norms per residual branch
  const Index norm = s.d * (m.norm == NormType::layer ? 2 : 1);
  if (p.sequence)
    elements["tensor"] += (norms * (2 * p.count("P") + p.count("M*W-EBLXG")) + p.count(">") +
                           (m.norm_placement == NormPlacement::after ? p.first() : p.last()) + 3 * p.depths()) *
                          norm;
  if (p.sequence && p.predicts_sentence_order()) elements["tensor"] += s.d * s.d + s.d;
  if (p.sequence && p.dense() && p.last()) elements["tensor"] += s.d * s.d + p.dense_bias() * s.d + (p.transforms() ? norm : 0);
}

// The gradients of replicated weights are summed once per step, in one call per number of replicas.
void replicas(const Place& p, Ledger& ledger) {
  std::map<std::string, Index> elements;
  add_replicas(p.with_cross_attention(), elements);
  if (p.has_first_reader) add_replicas(p.reading(), elements);
  for (const auto& [communicator, all] : elements)
    if (all > 0) add(ledger, communicator, Operation::all_reduce, 1, all * p.wide);
}

// Channels of all queries, keys, values and outputs on a rank, and the numbers of query and key heads.
struct Heads {
  Index q, k, v, out, heads, k_heads;

  static Heads of(const AttentionConfig& c, const Shards& s) {
    const Index heads = s.q / c.head_dim, k_heads = s.k / c.head_dim;
    return {s.q, s.k, s.out / heads * k_heads, s.out, heads, k_heads};
  }
  static Heads of(const LatentConfig& c, int ranks) {
    const Index heads = divided_units(ranks, c.num_heads).units, q = heads * c.qk_head_dim(), v = heads * c.v_head_dim;
    return {q, q, v, v, heads, heads};
  }
};

// Load-balanced context-parallel attention of rank r of n, in steps t = 1 ... (n - 1) / 2. If r + t < n, the rank sends
// keys and values, otherwise queries. If r >= t, it receives keys and values, otherwise queries. With n even, half of
// the ranks also send keys and values to the other half. The attention state of sent queries is returned. The backward
// pass returns every gradient, and sends output gradients, lse and delta along with queries.
void balanced_attention(const Place& p, const Heads& s, Index kv, Index forwards, Index backwards, Ledger& ledger) {
  const Index n = p.context, r = p.tokens.rank, steps = (n - 1) / 2, rows = p.rows(), heads = s.heads;
  const Index keys_sent = std::min(steps, n - 1 - r), keys_met = std::min(steps, r), queries_sent = steps - keys_sent, helped = steps - keys_met;
  const bool even = n % 2 == 0, sends = even && r < n / 2, receives = even && r >= n / 2;
  const auto context = [&](Operation op, Index calls, Index bytes_each) { add(ledger, "context", op, calls, bytes_each); };
  const auto keys = [&](Index passes, Index bytes_each, Index leaving, Index half_leaves, Index half_arrives) {
    context(Operation::shift, passes * leaving, bytes_each);
    context(Operation::send, passes * half_leaves, bytes_each);
    context(Operation::receive, passes * half_arrives, bytes_each);
  };
  const auto with_queries = [&](Index passes, Index bytes_each, Index leaving, Index arriving) {
    context(Operation::send, passes * leaving, bytes_each);
    context(Operation::receive, passes * arriving, bytes_each);
  };
  keys(forwards + backwards, kv * p.narrow, keys_sent, sends, receives);
  context(Operation::shift, forwards * queries_sent, rows * s.q * p.narrow);
  context(Operation::shift, backwards * queries_sent, rows * (s.q + s.out) * p.narrow);
  with_queries(forwards, rows * (s.out + 2 * heads) * p.wide, helped, queries_sent);
  with_queries(backwards, rows * 2 * heads * p.wide, queries_sent, helped);
  keys(backwards, kv * p.wide, keys_met, receives, sends);
  context(Operation::shift, backwards * helped, rows * s.q * p.wide);
}

// Steps of ring attention. With a sliding window and contiguous tokens, only the ranks within the window's reach and
// the rank itself take part. Zigzag order has neighbouring blocks on adjacent ranks in both directions. A bidirectional
// window needs the keys of the next rank last.
Index ring_steps(const Place& p, char symbol) {
  const Index n = p.context, length = p.tokens.seq_length, w = p.model().window.size;
  if (symbol != 'W') return n;
  if (p.tokens.order == SequenceOrder::zigzag || !p.model().attention.causal) return w > 1 ? n : 1;
  return std::min(n, 1 + (w - 1 + length - 1) / length);
}

// Context-parallel traffic of attention. In a ring, keys and values are passed around, and in the backward pass also
// their gradients; other modes exchange heads for tokens or balance the load.
void attention_over_context(const Place& p, const char* symbols, const Heads& s, Ledger& ledger) {
  const Index kv = p.rows() * (s.k + s.v);
  const Index back = p.config.micros * p.count(symbols), attention = back + p.config.micros * p.count(symbols, RecomputeCost::mixing);
  if (p.tokens.mode == ContextMode::heads) {  // each rank computes all rows for its part of the heads
    const Index rows = p.context * p.rows(), copies = std::max<Index>(1, p.context / s.k_heads);
    const Index part = (s.q + (s.k + s.v) * copies) / p.context, out = s.out / p.context, q_heads = s.heads / p.context;
    add(ledger, "context", Operation::all_to_all, attention + back, rows * part * p.narrow);
    add(ledger, "context", Operation::all_to_all, attention + back, rows * out * p.narrow);
    add(ledger, "context", Operation::all_to_all, back, rows * part * p.wide);
    add(ledger, "context", Operation::all_to_all, back, rows * q_heads * p.wide);
  } else if (p.tokens.mode == ContextMode::balanced) {
    balanced_attention(p, s, kv, attention, back, ledger);
  } else {
    for (const char symbol : std::string(symbols)) {
      const char one[] = {symbol, 0};
      const Index steps = ring_steps(p, symbol), back = p.config.micros * p.count(one);
      add(ledger, "context", Operation::shift, (2 * back + p.config.micros * p.count(one, RecomputeCost::mixing)) * (steps - 1), kv * p.narrow);
      add(ledger, "context", Operation::shift, back * (steps > 1 ? steps : 0), kv * p.wide);
    }
  }
}

void ssm_over_context(const Place& p, const Mixers& mixers, Ledger& ledger) {
  const MambaConfig& c = p.model().mamba;
  const Shards s = mixers.shards(p);
  const Index blocks = p.tokens.batch * p.tokens.blocks();
  const Index scans = p.config.micros * (2 * p.count(mixers.symbols) + p.count(mixers.symbols, RecomputeCost::sum));
  if (c.conv_kernel > 1) add(ledger, "context", Operation::all_gather, scans, blocks * (c.conv_kernel - 1) * s.channels * p.narrow);
  add(ledger, "context", Operation::all_gather, scans, blocks * (s.num_heads + s.inner * c.state_size) * p.wide);
}

void delta_over_context(const Place& p, Ledger& ledger) {
  const DeltaConfig& c = p.model().delta;
  const Shards s(p.model(), p.tensor);
  const Index blocks = p.tokens.batch * p.tokens.blocks();
  const Index scans = p.config.micros * (2 * p.count("G") + p.count("G", RecomputeCost::sum));
  add(ledger, "context", Operation::all_gather, scans, blocks * (c.conv_kernel - 1) * s.delta_channels * p.narrow);
  add(ledger, "context", Operation::all_gather, scans, blocks * (s.delta_heads.units * c.key_dim + s.delta_inner) * c.key_dim * p.wide);
}

void context_axis(const Place& p, Ledger& ledger) {
  if (p.context == 1) return;
  const ModelConfig& m = p.model();
  for (const Mixers& attention : attention_of(p)) attention_over_context(p, attention.symbols, Heads::of(m.attention, attention.shards(p)), ledger);
  attention_over_context(p, "L", Heads::of(m.latent, p.tensor), ledger);
  for (const Mixers& ssm : ssm_of(p)) ssm_over_context(p, ssm, ledger);
  delta_over_context(p, ledger);
  if (p.pools() && p.last())  // sums and counts of the texts; a text may begin in a row of any rank
    for (const Index columns : {m.hidden_size, Index(1)})
      add(ledger, "context", Operation::all_reduce, 2 * p.config.micros, p.tokens.batch * p.tokens.full_length() * columns * p.wide);
  if (p.most_pairs() > 0) add(ledger, "context", Operation::all_reduce, p.config.micros, 2 * p.most_pairs() * Index(sizeof(double)));
  const MoeConfig& moe = m.moe;
  if (moe.aux_loss > 0 || moe.z_loss > 0)
    add(ledger, "context", Operation::all_reduce, p.config.micros * p.count("E"), p.tokens.batch * moe.experts * p.wide);
}

// Cross-attention over context-parallel ranks: keys and values of the encoder output are gathered at each use, and
// their gradients are reduced.
void source_over_context(const Place& p, Ledger& ledger) {
  if (p.context == 1) return;
  const Index kv = p.source.rows() * 2 * Shards(p.model(), p.tensor).k, each = p.config.micros * p.count("X");
  add(ledger, "context", Operation::all_gather, 2 * each + p.config.micros * p.count("X", RecomputeCost::mixing), kv * p.narrow);
  add(ledger, "context", Operation::reduce_scatter, each, p.context * kv * p.wide);
}

// Layers R over context-parallel ranks, in the first of them only: the encoded neighbours of the last chunk of a block go to the rank with
// the next block, and their gradient returns. In zigzag order, the second blocks follow each other from the last rank to the first one.
void neighbours_over_context(const Place& p, Ledger& ledger) {
  if (p.context == 1 || !p.has_first_reader || p.model().retrieval.chunk == 1) return;
  const RetrievalConfig& c = p.model().retrieval;
  const Index bytes = p.tokens.batch * c.neighbours * 2 * c.chunk * p.encoder_width() * p.narrow;
  const bool above = p.tokens.rank + 1 < p.context, below = p.tokens.rank > 0;
  for (int block = 0; block < (p.tokens.order == SequenceOrder::zigzag ? 2 : 1); ++block)
    for (int backward = 0; backward < 2; ++backward) {
      const bool sends = block == backward ? above : below, receives = block == backward ? below : above;
      if (sends || receives)
        add(ledger, "context", sends && receives ? Operation::shift : sends ? Operation::send : Operation::receive, p.config.micros, bytes);
    }
}

// Expert-parallel traffic. The counts of chosen experts are summed once per step. Each row is sent to its experts with
// its weight and returned, in both directions. Received rows are counted for even routing; a remainder goes to the
// experts in turn.
void expert_ranks(const Place& p, Ledger& ledger) {
  const MoeConfig& moe = p.model().moe;
  if (p.copies > 1 && p.count("E") > 0)
    add(ledger, p.copies_name, Operation::all_reduce, 1, p.count("E") * (moe.experts + moe.shared_gate) * Index(sizeof(double)));
  if (p.expert == 1) return;
  const Index d = expert_width(p.model()), slots = p.slots(), each = p.experts_here(), over = p.expert * (slots % moe.experts);
  Index received = p.expert * each * (slots / moe.experts);
  for (Index e = p.expert_rank * each; e < (p.expert_rank + 1) * each; ++e) received += over / moe.experts + (e < over % moe.experts);
  const Index times = p.config.micros * p.count("E");
  const auto exchange = [&](Index calls, Index bytes) { add(ledger, "expert", Operation::all_to_all, calls, bytes); };
  exchange(times + p.config.micros * p.count("E", RecomputeCost::sum), slots * p.wide);
  exchange(2 * times + p.config.micros * p.count("E", RecomputeCost::gemm), slots * d * p.narrow);
  // the sum of expert outputs is saved for the gradient of the projection from the latent
  const Index sums_again = moe.latent_size > 0 ? p.count("E", RecomputeCost::sum) : last_sums_again(p, "E");
  exchange(2 * times + p.config.micros * sums_again, received * d * p.narrow);
  exchange(times, received * p.wide);
}

// Layers R over pipeline stages: encoded or, up to the first R, embedded neighbours are sent up to the last R, and those of the chunks
// before blocks of tokens from the first R on. Gradients return.
void neighbours_over_pipeline(const Place& p, Ledger& ledger) {
  const Index before = p.neighbours_before_blocks() * p.encoder_width() * p.narrow;
  for (const Index layer : p.borders)
    for (const Operation op : {Operation::send, Operation::receive}) {
      if (layer < p.readers_end) add(ledger, "pipeline", op, p.config.micros, p.reading().kept_bytes());
      if (layer > p.first_reader && layer < p.readers_end && before > 0) add(ledger, "pipeline", op, p.config.micros, before);
    }
}

void pipeline_axis(const Place& p, Ledger& ledger) {
  const Index neighbours = 2 * p.chunks - p.first() - p.last();  // neighbours of all chunks, except at the model's ends
  add(ledger, "pipeline", Operation::send, p.config.micros * neighbours, p.kept_bytes());
  add(ledger, "pipeline", Operation::receive, p.config.micros * neighbours, p.kept_bytes());
  neighbours_over_pipeline(p, ledger);
  for (const Index other_part : {p.source.rows() > 0 && !p.reads_neighbours() ? p.reading().kept_bytes() : 0, p.bias_bytes()})
    for (const Operation op : {Operation::send, Operation::receive})
      if (other_part > 0) add(ledger, "pipeline", op, p.config.micros * neighbours, other_part);
}

void tied_matrix(const Place& p, Ledger& ledger) {
  if (shares_embedding(p.model()) && p.pipeline > 1 && (p.first() || p.last()))
    add(ledger, "embedding", Operation::all_reduce, 1, p.tokens_here() * p.model().hidden_size * p.wide);
}

// Adds the traffic of a bucket, one call per section (type and sharding).
void add_bucket(const Place& p, Ledger& ledger, const BucketSizes& bucket, Index reductions, Index gathers) {
  for (const auto& [size, bytes] :
       {std::pair{bucket.narrow, p.narrow}, {bucket.wide, p.wide}, {bucket.team_narrow, p.narrow}, {bucket.team_wide, p.wide}}) {
    if (size == 0) continue;
    add(ledger, p.copies_name, Operation::reduce_scatter, reductions, size * p.reduced());
    add(ledger, p.copies_name, Operation::all_gather, gathers, size / p.copies * bytes);
  }
  for (const auto& [size, bytes] : {std::pair{bucket.experts_narrow, p.narrow}, {bucket.experts_wide, p.wide}}) {
    if (size == 0 || p.expert_replicas() == 1) continue;
    add(ledger, "expert-replicas", Operation::reduce_scatter, reductions, size * p.reduced());
    add(ledger, "expert-replicas", Operation::all_gather, gathers, size / p.expert_replicas() * bytes);
  }
}

// Data-parallel traffic. Without sharding, each bucket is all-reduced once. With optimizer sharding, gradients are
// reduce-scattered and changed weights are all-gathered once. With gradient sharding there is a reduce-scatter at every
// use of a bucket. With weight sharding (ZeRO-3) there is an all-gather at every use, unless one of the two buffers
// still holds the bucket.
void data_axis(const Place& p, Ledger& ledger) {
  if (p.copies == 1) return;
  const Buckets buckets = buckets_of(p);
  if (p.shard == Shard::none) {
    for (const BucketSizes& b : buckets.sizes) {
      add(ledger, p.copies_name, Operation::all_reduce, 1, b.common() * p.reduced());
      if (b.experts() > 0 && p.expert_replicas() > 1) add(ledger, "expert-replicas", Operation::all_reduce, 1, b.experts() * p.reduced());
    }
    return;
  }
  std::vector<Index> reductions(buckets.sizes.size(), 1), gathers = reductions;
  const BufferUses uses = buffer_uses(p, buckets);
  for (std::size_t b = 0; b < buckets.sizes.size(); ++b) {
    if (buckets.sizes[b].unsharded) continue;
    if (p.shard >= Shard::gradients) reductions[b] = std::count(uses.gradients.begin(), uses.gradients.end(), int(b));
    if (p.shard == Shard::weights) gathers[b] = 0;
  }
  for (std::size_t i = 0; p.shard == Shard::weights && i < uses.values.size(); ++i)
    if (i < 2 || uses.values[i] != uses.values[i - 2]) ++gathers[uses.values[i]];
  for (std::size_t b = 0; b < buckets.sizes.size(); ++b) add_bucket(p, ledger, buckets.sizes[b], reductions[b], gathers[b]);
}

}  // namespace

Ledger ledger_of(const std::vector<CommunicatorTraffic>& list) {
  Ledger ledger;
  for (const CommunicatorTraffic& c : list)
    for (int op = 0; op < operations; ++op)
      if (const Traffic all = c.count.of(Operation(op)); all.calls > 0) ledger[{c.name, Operation(op)}] = all;
  return ledger;
}

template <class T>
Ledger closed_form(const EngineConfig& config, const Layout& layout, int position) {
  const Place p = Place::of<T>(config, layout, position);
  Ledger ledger;
  tensor_axis(p.writing(), ledger);
  ternary_scales(p.writing(), ledger);
  fp8_maxima(p.writing(), ledger);
  context_axis(p.writing(), ledger);
  if (p.source.rows() > 0) {
    tensor_axis(p.reading(), ledger);
    if (!p.reads_neighbours()) context_axis(p.reading(), ledger), source_over_context(p, ledger);
    neighbours_over_context(p, ledger);
    source_over_tensor(p, ledger);
  }
  expert_ranks(p, ledger);
  pipeline_axis(p, ledger);
  data_axis(p, ledger);
  if (p.shard == Shard::none) replicas(p, ledger), tied_matrix(p, ledger);
  return ledger;
}

template <class T>
Ledger closed_form_of_parts(const EngineConfig& config, const Layout& layout, int position) {
  const Place p = Place::of<T>(config, layout, position);
  Ledger ledger;
  if (p.shard != Shard::none) replicas(p, ledger), tied_matrix(p, ledger);
  return ledger;
}

template <class T>
Index gradient_bytes(const EngineConfig& config, const Layout& layout, int position) {
  const Place p = Place::of<T>(config, layout, position);
  if (p.shard < Shard::gradients) return flat_extent(p, false) * p.wide;
  Index unsharded = 0, most = 0, sharing_buffers = 0;
  for (const BucketSizes& b : buckets_of(p).sizes) b.unsharded ? unsharded += b.size() : (most = std::max(most, b.size()), ++sharing_buffers);
  return (flat_extent(p, true) + unsharded + std::min<Index>(2, sharing_buffers) * most) * p.wide;
}

template <class T>
Index optimizer_bytes(const EngineConfig& config, const Layout& layout, int position) {
  const Place p = Place::of<T>(config, layout, position);
  const Index runs = p.narrow == p.wide ? 2 : 3;  // Adam moments and fp32 master weights
  return runs * flat_extent(p, p.shard != Shard::none) * p.wide;
}

bool can_exchange(const ModelConfig& m, int tensor, int context, int attention_ranks) {
  const auto can = [&](int ranks) {
    const Index heads = std::max<Index>(1, m.attention.num_heads / ranks), keys = std::max<Index>(1, m.attention.num_kv_heads / ranks);
    return heads % context == 0 && (keys % context == 0 || context % keys == 0);
  };
  const auto used = [layers = all_layers(m)](char symbol) { return layers.find(symbol) != std::string::npos; };
  const Index latent = std::max<Index>(1, m.latent.num_heads / tensor);
  return (!used('L') || latent % context == 0) && (!(used('*') || used('W') || used('B')) || can(tensor)) &&
         (!used('P') || can(attention_ranks > 0 ? attention_ranks : tensor));
}

bool can_shard(const ModelConfig& m, int tensor, int attention_ranks) {
  const auto split = [](Index units, int ranks) { return units % ranks == 0 || ranks % units == 0; };
  const std::string of_decoder = all_layers(m);
  const bool retrieves = of_decoder.find('R') != std::string::npos;
  if (retrieves && m.encoder) {
    ModelConfig encoder = m;
    encoder.pattern = m.retrieval.encoder, encoder.attention = m.encoder->attention, encoder.mlp = m.encoder->mlp;
    if (!can_shard(encoder, tensor, attention_ranks)) return false;
  }
  const std::string layers = retrieves && !m.encoder ? of_decoder + m.retrieval.encoder : of_decoder;
  const auto used = [&](char symbol) { return layers.find(symbol) != std::string::npos; };
  const auto attention = [&](int ranks) { return split(m.attention.num_heads, ranks) && split(m.attention.num_kv_heads, ranks); };
  const auto ssm = [&](int ranks) { return split(m.mamba.num_heads, ranks) && split(m.mamba.num_groups, ranks); };
  const bool separate = attention_ranks > 0;
  const bool experts =
      split(m.moe.intermediate_size, tensor) && (m.moe.shared_intermediate_size == 0 || split(m.moe.shared_intermediate_size, tensor));
  const bool delta = split(m.delta.num_heads, tensor) && split(m.delta.num_key_heads, tensor);
  return (!used('E') || experts) && (!used('G') || delta) && (!used('L') || split(m.latent.num_heads, tensor)) &&
         (!(used('*') || used('W') || used('B') || used('X') || used('R') || m.attention.relative_bias.buckets > 0) || attention(tensor)) &&
         (!used('M') || ssm(tensor)) && (!(used('P') || used('-') || used('B')) || split(m.mlp.intermediate_size, tensor)) &&
         (!used('P') || (attention(separate ? attention_ranks : tensor) && ssm(tensor - attention_ranks)));
}

#define GYR_INSTANTIATE(T)                                                          \
  template Ledger closed_form<T>(const EngineConfig&, const Layout&, int);          \
  template Ledger closed_form_of_parts<T>(const EngineConfig&, const Layout&, int); \
  template Index gradient_bytes<T>(const EngineConfig&, const Layout&, int);        \
  template Index optimizer_bytes<T>(const EngineConfig&, const Layout&, int)
GYR_INSTANTIATE(double);
GYR_INSTANTIATE(float);
GYR_INSTANTIATE(bf16);

}  // namespace gyr::testing
