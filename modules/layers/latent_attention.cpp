// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/latent_attention.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ops/head_norm.hpp"
#include "modules/context/context_attention.hpp"
#include "modules/layers/attention.hpp"
#include "modules/pass/kv_cache_rows.hpp"
#include "modules/weights/contribution.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

namespace {
// Run of the channels of all heads, `each` channels per head (weight.hpp).
Run of_heads(const LatentConfig& c, Index each) { return {c.num_heads * each, c.num_heads, false, "latent.num_heads"}; }
}  // namespace

// The latents are normalised over all of their channels, so they are not sharded. Without a query latent, the stream is
// passed on next to the key/value latent, for the query projection. Each rank has a partial gradient of the stream,
// which is summed there with those of other branches.
OperatorChain latent_attention_operators(const ModelConfig& m, const std::string& name) {
  const LatentConfig& c = m.latent;
  const bool of_latents = c.q_rank > 0;
  const Index q_from = of_latents ? c.q_rank : m.hidden_size, shared = c.kv_rank + c.rope_dim;
  const Channels stream = undivided(m.hidden_size), latents = undivided(q_from + shared);
  const Run queries = of_heads(c, c.qk_head_dim()), keys_and_values = of_heads(c, c.head_dim + c.v_head_dim), values = of_heads(c, c.v_head_dim);
  const Channels qkv = by_units({queries, keys_and_values});
  std::vector<OperatorWeight> down{{name + ".kv_a_proj_with_mqa.weight", {shared, m.hidden_size}}},
      norms{{name + ".kv_a_layernorm.weight", {c.kv_rank}}};
  if (of_latents) {
    down.push_back({name + ".q_a_proj.weight", {c.q_rank, m.hidden_size}});
    norms.push_back({name + ".q_a_layernorm.weight", {c.q_rank}});
  }
  if (c.bias) down.push_back({name + ".kv_a_proj_with_mqa.bias", {shared}});
  if (c.bias && of_latents) down.push_back({name + ".q_a_proj.bias", {c.q_rank}});
  Operator expand = gemm_operator("queries, keys, values", latents, qkv, {name + (of_latents ? ".q_b_proj" : ".q_proj"), name + ".kv_b_proj"});
  expand.weights[0].shape[1] = q_from, expand.weights[1].shape[1] = c.kv_rank;
  const Operator compress{"latents", stream, latents, {{TensorState::shared, TensorState::shared}}, down};
  return {compress, over_rows("norm of latents", latents, latents, norms), expand, over_tokens("attention", qkv, by_units({values})),
          gemm_operator("output", by_units({values}), stream, {name + ".o_proj"}, c.bias)};
}

template <class T>
LatentAttention<T>::LatentAttention(const ModelConfig& m, const std::string& name, Parameters& parameters)
    : c_(m.latent), name_(name), dropped_(m.dropout.attention) {
  declare_compression(m, name, parameters);
  declare_heads(m, name, parameters);
  const Index heads = kv_b_->rows() / (c_.head_dim + c_.v_head_dim);
  heads_ = {heads, c_.head_dim, c_.rope_dim, c_.v_head_dim, c_.neighbours};
  const RopeScaling& rope = c_.rope_scaling;
  const double growth = rope.type == RopeScaling::none || rope.factor <= 1 ? 1 : 0.1 * c_.score_growth * std::log(rope.factor) + 1;
  scale_ = growth * growth / std::sqrt(double(c_.qk_head_dim()));
}

template <class T>
void LatentAttention<T>::declare_compression(const ModelConfig& m, const std::string& name, Parameters& parameters) {
  using Fit = Parameters::Fit;
  const auto declare = [&](const char* part, Shape shape, const Init& init, Storage storage, bool decays, Fit fit) {
    return &parameters.declare({name + part, std::move(shape), replicated(), init, storage, decays, true}, fit);
  };
  const auto matrix = [&](const char* part, Index rows, Fit fit) {
    return declare(part, {rows, m.hidden_size}, normal(m.init_std), Storage::factor, true, fit);
  };
  const auto vector = [&](const char* part, Index size, const Init& init, Fit fit) { return declare(part, {size}, init, Storage::wide, false, fit); };
  const Fit after_queries = c_.q_rank > 0 ? Fit::adjacent : Fit::aligned;
  const Index shared = c_.kv_rank + c_.rope_dim;
  if (c_.q_rank > 0) q_a_ = matrix(".q_a_proj.weight", c_.q_rank, Fit::aligned);
  kv_a_ = matrix(".kv_a_proj_with_mqa.weight", shared, after_queries);
  if (c_.bias && c_.q_rank > 0) q_a_bias_ = vector(".q_a_proj.bias", c_.q_rank, zeros(), Fit::aligned);
  if (c_.bias) kv_a_bias_ = vector(".kv_a_proj_with_mqa.bias", shared, zeros(), after_queries);
  if (c_.q_rank > 0) q_norm_ = vector(".q_a_layernorm.weight", c_.q_rank, ones(), Fit::aligned);
  kv_norm_ = vector(".kv_a_layernorm.weight", c_.kv_rank, ones(), Fit::aligned);
}

template <class T>
void LatentAttention<T>::declare_heads(const ModelConfig& m, const std::string& name, Parameters& parameters) {
  const auto matrix = [&](const char* part, Index each, Index width, Storage storage = Storage::factor) {
    const Run run = of_heads(c_, each);
    return &parameters.declare({name + part, {run.extent, width}, by_rows({run}), normal(m.init_std), storage});
  };
  q_b_ = c_.q_rank > 0 ? matrix(".q_b_proj.weight", c_.qk_head_dim(), c_.q_rank) : matrix(".q_proj.weight", c_.qk_head_dim(), m.hidden_size);
  kv_b_ = matrix(".kv_b_proj.weight", c_.head_dim + c_.v_head_dim, c_.kv_rank, Storage::narrow);  // generation also reads its transpose
  const Run values = of_heads(c_, c_.v_head_dim);
  o_ = &parameters.declare({name + ".o_proj.weight", {m.hidden_size, values.extent}, by_columns({values}), normal(m.init_std), Storage::factor});
  if (c_.bias) o_bias_ = &parameters.declare({name + ".o_proj.bias", {m.hidden_size}, replicated(), zeros(), Storage::wide, false});
}

// The projections to the latents, q_a_proj and kv_a_proj_with_mqa, are adjacent in memory, so that one GEMM serves
// both.
template <class T>
Matrix<const T> LatentAttention<T>::w_compress() const {
  const auto first = (q_a_ ? q_a_ : kv_a_)->template matrix<const T>();
  return {first.data(), compressed_width(), Index(first.extent(1)), Index(first.extent(1))};
}

template <class T>
RowRotation<Acc<T>> LatentAttention<T>::rotation(const Pass& a) const {
  return a.rotation<A>(c_.rope_theta, c_.rope_scaling, c_.rope_dim);
}

template <class T>
AttentionShape LatentAttention<T>::shape(Index batch, Index queries, Index keys) const {
  return {batch, queries, keys, heads_.heads, heads_.heads, heads_.width(), heads_.values};
}

template <class T>
ScoreRule LatentAttention<T>::scores(const Pass& a) const {
  ScoreRule scores = scale_;
  scores.dropout = a.dropout(name_, dropped_);
  scores.dropout.first_head = kv_b_->first(0) / (c_.head_dim + c_.v_head_dim);
  return scores;
}

template <class T>
void LatentAttention<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const Index rows = a.stream.rows;
  frame.put(Keys::compressed, rows, compressed_width());
  frame.put(Keys::latents, rows, latent_width());
  frame.put(Keys::rstd, rows, Index(2));
  const auto qkv = frame.put(Keys::qkv, rows, 2 * k_width() + v_width());
  const auto out = frame.put(Keys::attended, rows, v_width());
  const auto lse = frame.put(Keys::lse, rows, heads_.heads);
  if (frame.wants(Keys::qkv)) compress(a, frame, h.gather()), expand(a, frame, h.gather());
  if (frame.wants(Keys::attended)) attend(a, frame, qkv, out, lse);
  a.show(name_, ".queries", part(qkv, 0), *q_b_);
  a.show(name_, ".attended", out, *o_);
  if (!y.data()) return;
  linear<T>(a.dev, out, o_->template factor<T>(), y, 1, beta(add));
  if (c_.bias && a.holders(*o_).rank() == 0) add_bias<T>(a.dev, o_bias_->template vector<const A>(), 1, y);
}

template <class T>
void LatentAttention<T>::compress(Pass& a, Frame& frame, Tensor2<const T> h) {
  const auto compressed = frame.get(Keys::compressed), latents = frame.get(Keys::latents);
  const auto rstd = frame.get(Keys::rstd);
  linear<T>(a.dev, h, (q_a_ ? q_a_ : kv_a_)->template factor<T>(compressed_width()), compressed);
  if (c_.bias)
    add_bias<T>(a.dev, Tensor1<const A>((q_a_bias_ ? q_a_bias_ : kv_a_bias_)->template vector<const A>().data(), compressed_width()), 1, compressed);
  if (q_a_) head_norm<T>(a.dev, of_queries(compressed), q_norm_->template vector<const A>(), c_.norm_eps, of_queries(latents), columns(rstd, 0, 1));
  head_norm<T>(a.dev, of_keys(compressed), kv_norm_->template vector<const A>(), c_.norm_eps, of_keys(latents), columns(rstd, 1, 1));
}

template <class T>
void LatentAttention<T>::expand(Pass& a, Frame& frame, Tensor2<const T> h) {
  const auto compressed = frame.get(Keys::compressed), latents = frame.get(Keys::latents), qkv = frame.get(Keys::qkv);
  Scope scope(a.dev.scratch);
  const auto expanded = a.scratch<T>("non-rotary keys, and values", a.stream.rows, heads_.heads * heads_.expanded());
  linear<T>(a.dev, q_a_ ? Matrix<const T>(of_queries(latents)) : Matrix<const T>(h), q_b_->template factor<T>(), part(qkv, 0));
  if (!absorbs(a)) linear<T>(a.dev, of_keys(latents), kv_b_->template factor<T>(), expanded);
  const RowRotation<A> angles = rotation(a);
  expand_heads<T>(a.dev, heads_, angles.table, angles.index, expanded, shared(compressed), part(qkv, 0), part(qkv, 1), part(qkv, 2));
}

template <class T>
void LatentAttention<T>::attend(Pass& a, Frame& frame, Tensor2<T> qkv, Tensor2<T> out, Tensor2<A> lse) {
  const Device::Purpose purpose(a.dev, "attention (context parallel): queries, keys, values or outputs of a rank's rows");
  if (a.state && a.sequences.seq_length > 1) write_cache(a, frame.get(Keys::latents), qkv);
  if (absorbs(a)) {
    attend_to_cache(a, frame, qkv, out);
  } else if (a.context) {
    context_attention<T>(a, shape(0, 0, 0), scores(a), 0)->forward(part(qkv, 0), part(qkv, 1), part(qkv, 2), out, lse);
  } else {
    Scope scope(a.dev.scratch);
    const AttentionState<A> state = online_softmax_state<T>(a, out, lse);
    const AttentionShape all = shape(a.sequences.batch, a.sequences.seq_length, a.sequences.seq_length);
    attention<T>(a.dev, all, a.mask, scores(a), part(qkv, 0), part(qkv, 1), part(qkv, 2), Carry::fresh, state);
    attention_finish<T>(a.dev, all, state, out, lse);
  }
  contribute_once<T>(a.dev, *o_, out);
}

template <class T>
bool LatentAttention<T>::absorbs(const Pass& a) const {
  const std::vector<Index>& past = a.sequences.past;
  return a.state && (a.sequences.seq_length == 1 || std::any_of(past.begin(), past.end(), [](Index n) { return n > 0; }));
}

template <class T>
Tensor3<T> LatentAttention<T>::cache(Pass& a) const {
  return a.state->tensor(a.dev, this, Keys::cache, a.state->capacity(), cached_width());
}

template <class T>
Matrix<const T> LatentAttention<T>::w_expand(Index h, Index first, Index count) const {
  return Matrix<const T>(kv_b_->template matrix<const T>()).block(h * heads_.expanded() + first, count, 0, c_.kv_rank);
}

// Appends the rows of this pass to the cache. With one token per sequence, attention_step does it.
template <class T>
void LatentAttention<T>::write_cache(Pass& a, Tensor2<const T> latents, Tensor2<const T> qkv) {
  const Index length = a.sequences.seq_length, capacity = a.state->capacity();
  const Tensor3<T> all = cache(a);
  for (Index b = 0; b < a.sequences.batch; ++b) {
    const Tensor2<T> mine(all.data() + (a.sequences.first_sequence + b) * capacity * cached_width(), capacity, cached_width());
    write_rows(a, latents, qkv, b * length, rows(mine, a.sequences.past_of(b), length));
  }
}

// Rows of the cache for the rows of this pass from `first` on. All heads have the same rotary channels of a key.
template <class T>
void LatentAttention<T>::write_rows(Pass& a, Tensor2<const T> latents, Tensor2<const T> qkv, Index first, Tensor2<T> to) const {
  const Index count = Index(to.extent(0));
  convert<T, T>(a.dev, of_keys(latents).block(first, count, 0, c_.kv_rank), columns(to, 0, c_.kv_rank));
  convert<T, T>(a.dev, part(qkv, 1).block(first, count, c_.head_dim, c_.rope_dim), columns(to, c_.kv_rank, c_.rope_dim));
}

// Queries of all heads times B_k, followed by their rotary channels: (R, heads (kv_rank + rope_dim)) in scratch.
template <class T>
Tensor2<T> LatentAttention<T>::absorb(Pass& a, Tensor2<const T> qkv) const {
  const Index count = Index(qkv.extent(0));
  const auto absorbed = a.scratch<T>("absorbed queries", count, heads_.heads * cached_width());
  for (Index h = 0; h < heads_.heads; ++h) {
    const Matrix<const T> q = columns(qkv, h * heads_.width(), heads_.width());
    const Matrix<T> to = columns(absorbed, h * cached_width(), cached_width());
    linear_backward_input<T>(a.dev, q.block(0, count, 0, c_.head_dim), w_expand(h, 0, c_.head_dim), to.block(0, count, 0, c_.kv_rank));
    convert<T, T>(a.dev, q.block(0, count, c_.head_dim, c_.rope_dim), to.block(0, count, c_.kv_rank, c_.rope_dim));
  }
  return absorbed;
}

// One token per sequence: a single call for all sequences, which also appends the tokens to the cache. More tokens: sequence by sequence, because
// each has its own past length.
template <class T>
void LatentAttention<T>::attend_to_cache(Pass& a, Frame& frame, Tensor2<T> qkv, Tensor2<T> out) {
  const Index length = a.sequences.seq_length, count = Index(qkv.extent(0)), capacity = a.state->capacity(), heads = heads_.heads;
  Scope scope(a.dev.scratch);
  const Tensor2<T> queries = absorb(a, qkv), sums = a.scratch<T>("weighted sums of latents", count, heads * c_.kv_rank);
  const Tensor2<A> lse = a.scratch<A>("log-sum-exp of the scores", count, heads);
  const AttentionState<A> state = online_softmax_state<T>(a, sums, lse);
  const auto shape = [&](Index batch, Index queries, Index keys) {
    return AttentionShape{batch, queries, keys, heads, 1, cached_width(), c_.kv_rank};
  };
  const Tensor3<T> all = cache(a);
  if (length == 1) {
    const auto fresh = a.scratch<T>("rows for the KV cache", count, cached_width());
    write_rows(a, frame.get(Keys::latents), qkv, 0, fresh);
    attention_step<T>(a.dev, shape(count, 1, capacity), scale_, queries, fresh, kv_cache(a, all, 0, true), tokens_before(a), state);
  }
  for (Index b = 0; length > 1 && b < a.sequences.batch; ++b) {
    const Index past = a.sequences.past_of(b), first = b * length;
    const Tensor2<T> mine(all.data() + (a.sequences.first_sequence + b) * capacity * cached_width(), capacity, cached_width());
    const auto known = rows(mine, 0, past + length);
    Mask mask = a.mask;
    mask.first_query += past;
    attention<T>(a.dev, shape(1, length, past + length), mask, scale_, rows(queries, first, length), known, columns(known, 0, c_.kv_rank),
                 Carry::fresh, {rows(state.o, first, length), rows(state.m, first, length), rows(state.l, first, length)});
  }
  attention_finish<T>(a.dev, shape(a.sequences.batch, length, length), state, sums, lse);
  for (Index h = 0; h < heads; ++h)
    linear<T>(a.dev, columns(sums, h * c_.kv_rank, c_.kv_rank), w_expand(h, c_.head_dim, c_.v_head_dim),
              columns(out, h * c_.v_head_dim, c_.v_head_dim));
}

// Gradients of the queries, keys and values that attention reads (after RoPE). The result is in scratch until the
// caller's scope ends.
template <class T>
auto LatentAttention<T>::attend_backward(Pass& a, Frame& frame, Tensor2<const T> dout) -> Tensor2<A> {
  const auto out = frame.get(Keys::attended), qkv = frame.get(Keys::qkv);
  const auto lse = frame.get(Keys::lse);
  const auto all = shape(a.sequences.batch, a.sequences.seq_length, a.sequences.seq_length);
  const auto dqkv = a.scratch<A>("gradient of qkv (accumulator precision)", Index(qkv.extent(0)), Index(qkv.extent(1)));
  const auto delta = a.scratch<A>("delta", Index(qkv.extent(0)), heads_.heads);
  fill<A>(a.dev, flat(dqkv), 0);
  attention_delta<T>(a.dev, all, dout, out, delta);
  const auto q = part(qkv, 0), k = part(qkv, 1), v = part(qkv, 2);
  const auto dq = part(dqkv, 0), dk = part(dqkv, 1), dv = part(dqkv, 2);
  const Device::Purpose purpose(a.dev, "attention backward (context parallel): queries, keys, values and gradients of a rank's rows");
  if (a.context) context_attention<T>(a, shape(0, 0, 0), scores(a), 0)->backward(q, k, v, dout, lse, delta, dq, dk, dv);
  else attention_backward<T>(a.dev, all, a.mask, scores(a), q, k, v, dout, lse, delta, dq, dk, dv);
  return dqkv;
}

template <class T>
void LatentAttention<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const Index rows = dy.extent(0);
  const auto dq = frame.put(Keys::dq, rows, k_width()), dkv = frame.put(Keys::dkv, rows, heads_.heads * heads_.expanded());
  const auto dcompressed = frame.put(Keys::dcompressed, rows, compressed_width());
  Scope scope(a.dev.scratch);
  const auto dout = a.scratch<T>("gradient of attention output", rows, v_width());
  linear_backward_input<T>(a.dev, dy, o_->template matrix<const T>(), dout);
  contribute_once<T>(a.dev, *o_, dout);
  if (c_.bias) biases_backward<T>(a.dev, {o_bias_}, dy);
  const Tensor2<A> dqkv = attend_backward(a, frame, dout);
  const RowRotation<A> angles = rotation(a);
  expand_heads_backward<T>(a.dev, heads_, angles.table, angles.index, part(dqkv, 0), part(dqkv, 1), part(dqkv, 2), dq, dkv, shared(dcompressed));
  const auto dlatents = a.scratch<T>("gradient of latents", rows, latent_width());
  if (q_a_) linear_backward_input<T>(a.dev, dq, q_b_->template matrix<const T>(), of_queries(dlatents));
  linear_backward_input<T>(a.dev, dkv, kv_b_->template matrix<const T>(), of_keys(dlatents));
  compress_backward(a, frame, dlatents);
  linear_backward_input<T>(a.dev, dcompressed, w_compress(), dh, 1, beta(add));
  if (!q_a_) linear_backward_input<T>(a.dev, dq, q_b_->template matrix<const T>(), dh, 1, 1);
}

// Backward of the latents' norms. The gradient of the rotary key channels, which all heads share, is already in
// dcompressed.
template <class T>
void LatentAttention<T>::compress_backward(Pass& a, Frame& frame, Tensor2<T> dlatents) {
  const auto compressed = frame.get(Keys::compressed), dcompressed = frame.get(Keys::dcompressed);
  const auto rstd = frame.get(Keys::rstd);
  if (q_a_)
    head_norm_backward<T>(a.dev, of_queries(dlatents), of_queries(compressed), q_norm_->template vector<const A>(), columns(rstd, 0, 1),
                          of_queries(dcompressed), q_norm_->template vector_gradient<A>());
  head_norm_backward<T>(a.dev, of_keys(dlatents), of_keys(compressed), kv_norm_->template vector<const A>(), columns(rstd, 1, 1),
                        of_keys(dcompressed), kv_norm_->template vector_gradient<A>());
  if (c_.bias) biases_backward<T>(a.dev, {q_a_bias_, kv_a_bias_}, dcompressed);
}

template <class T>
void LatentAttention<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  const auto latents = frame.get(Keys::latents), dq = frame.get(Keys::dq);
  weights_backward<T>(a.dev, {o_}, dy, frame.get(Keys::attended));
  if (q_a_) weights_backward<T>(a.dev, {q_b_}, dq, of_queries(latents));
  else weights_backward<T>(a.dev, {q_b_}, dq, h);
  weights_backward<T>(a.dev, {kv_b_}, frame.get(Keys::dkv), of_keys(latents));
  weights_backward<T>(a.dev, {q_a_, kv_a_}, frame.get(Keys::dcompressed), h);
}

void read_latent(Section& s, ModelConfig& m) {
  LatentConfig& c = m.latent;
  c.num_heads =
      s.get("num_heads", c.num_heads, "attention heads (num_attention_heads), sharded over the tensor-parallel ranks").positive().at_most(widest);
  c.head_dim = s.get("head_dim", c.head_dim, "non-rotary query/key dimensions per head (qk_nope_head_dim)").positive().at_most(widest);
  c.rope_dim = s.get("rope_dim", c.rope_dim, "rotary query/key dimensions per head (qk_rope_head_dim), shared by the keys of all heads")
                   .positive()
                   .at_most(widest);
  c.v_head_dim = s.get("v_head_dim", c.v_head_dim, "value dimensions per head").positive().at_most(widest);
  c.q_rank = s.get("q_rank", c.q_rank, "rank of the query latent (q_lora_rank); 0: queries are projected directly from the stream")
                 .at_least(0)
                 .at_most(widest);
  c.kv_rank = s.get("kv_rank", c.kv_rank, "rank of the key/value latent (kv_lora_rank)").positive().at_most(widest);
  c.rope_theta = s.get("rope_theta", c.rope_theta, "base of the rotary position embedding (RoPE)").positive().finite();
  read_rope_scaling(s.section("rope", "RoPE scaling to contexts longer than those of the original pretraining (rope_scaling)"), c.rope_scaling);
  c.neighbours = s.get("neighbours", c.neighbours,
                       "RoPE rotates pairs of adjacent channels (rope_interleave); false: channels half of the rotary dimensions apart");
  c.norm_eps = s.get("norm_eps", c.norm_eps, "epsilon of the RMSNorms of the latents").at_least(0);
  c.score_growth = s.get("score_growth", c.score_growth, "with rope.type: scores are scaled by (score_growth / 10 ln(factor) + 1)^2 (mscale_all_dim)")
                       .at_least(0)
                       .finite();
  c.bias = s.get("bias", c.bias, "biases of the projections to the latents and of o_proj (attention_bias)");
}

LayerFlops latent_attention_flops(const ModelConfig& m, const TextLengths& lengths) {
  const LatentConfig& c = m.latent;
  const double d = double(m.hidden_size), heads = double(c.num_heads), q = heads * double(c.qk_head_dim()), v = heads * double(c.v_head_dim);
  const double keys = m.attention.causal ? double(lengths.text) / 2 : double(lengths.text);  // average number of visible keys per query
  LayerFlops f;
  f.gemms = 2 * d * double(c.q_rank + c.kv_rank + c.rope_dim) + 2 * (c.q_rank > 0 ? double(c.q_rank) : d) * q +
            2 * double(c.kv_rank) * heads * double(c.head_dim + c.v_head_dim) + 2 * v * d;
  f.attention = 2 * keys * (q + v);
  return f;
}

template class LatentAttention<double>;
template class LatentAttention<float>;
template class LatentAttention<bf16>;

}  // namespace gyr
