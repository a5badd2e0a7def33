// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/attention.hpp"

#include <cmath>

#include "kernels/ops/activation.hpp"
#include "kernels/ops/gate.hpp"
#include "modules/layers/projection.hpp"
#include "modules/pass/kv_cache_rows.hpp"
#include "modules/weights/contribution.hpp"

namespace gyr {

HeadRuns head_runs(const AttentionConfig& c) {
  const Index q = c.num_heads * c.head_dim, k = c.num_kv_heads * c.head_dim;
  const char* by_heads = "attention.num_heads";
  return {{q, c.num_heads, false, by_heads}, {k, c.num_kv_heads, false, "attention.num_kv_heads"}, {q, c.num_heads, true, by_heads}};
}

OperatorChain attention_operators(const ModelConfig& m, const std::string& name) {
  const AttentionConfig& c = m.attention;
  const auto [queries, keys, attended] = head_runs(c);
  const Channels stream = undivided(m.hidden_size);
  std::vector<Run> projected{queries, keys, keys};
  std::vector<std::string> weights{name + ".q_proj", name + ".k_proj", name + ".v_proj"};
  if (c.output_gate) projected.push_back(attended), weights.push_back(name + ".gate_proj");
  const Channels qkv = by_units(projected);
  std::vector<OperatorWeight> of_heads;
  if (c.qk_norm && !c.qk_norm_all_heads) of_heads = {{name + ".q_norm.weight", {c.head_dim}}, {name + ".k_norm.weight", {c.head_dim}}};
  if (c.sinks) of_heads.push_back({name + ".sinks", {c.num_heads}, {{c.num_heads, c.num_heads}}});
  OperatorChain chain{
      gemm_operator(c.output_gate ? "queries, keys, values, output gate" : "queries, keys, values", stream, qkv, weights, c.bias || c.qkv_bias)};
  if (c.qk_norm_all_heads)  // sums of the squares of all queries and of all keys of a row
    chain.push_back(over_units("norm of queries and keys", qkv, qkv,
                               {{name + ".q_norm.weight", {queries.extent}, {queries}}, {name + ".k_norm.weight", {keys.extent}, {keys}}},
                               {{{1, 1}, 2, 1, 1}}));
  chain.push_back(over_tokens("attention", qkv, by_units({attended}), of_heads));
  chain.push_back(gemm_operator("output", by_units({attended}), stream, {name + ".o_proj"}, c.bias));
  return chain;
}

template <class T>
Attention<T>::Attention(const ModelConfig& m, const std::string& name, Parameters& parameters)
    : c_(m.attention), eps_(m.rms_norm_eps), norm_offset_(m.norm_offset), name_(name), scores_(1 / std::sqrt(double(c_.head_dim)), c_.soft_cap),
      dropped_(m.dropout.attention) {
  using P = Parameters;
  const auto [query, key, attended] = head_runs(c_);
  const Index q = query.extent;
  const auto matrix = [&](const char* part, const Run& rows, P::Fit fit) {
    return &parameters.declare(
        adapting({name + part + ".weight", {rows.extent, m.hidden_size}, by_rows({rows}), normal(m.init_std), Storage::factor}), fit);
  };
  const auto bias = [&](const char* part, const Run& rows, P::Fit fit) {
    return &parameters.declare({name + part + ".bias", {rows.extent}, by_rows({rows}), zeros(), Storage::wide, false}, fit);
  };
  q_ = matrix(".q_proj", query, P::Fit::aligned);
  k_ = matrix(".k_proj", key, P::Fit::adjacent);
  v_ = matrix(".v_proj", key, P::Fit::adjacent);
  if (c_.output_gate) gate_ = matrix(".gate_proj", attended, P::Fit::aligned);
  o_ = &parameters.declare(adapting({name + ".o_proj.weight", {m.hidden_size, q}, by_columns({attended}), normal(m.init_std), Storage::factor}));
  if (has_qkv_bias()) {
    q_bias_ = bias(".q_proj", query, P::Fit::aligned);
    k_bias_ = bias(".k_proj", key, P::Fit::adjacent);
    v_bias_ = bias(".v_proj", key, P::Fit::adjacent);
  }
  if (c_.bias) o_bias_ = &parameters.declare({name + ".o_proj.bias", {m.hidden_size}, replicated(), zeros(), Storage::wide, false});
  const auto norm = [&](const char* part, const Run& heads) {
    const bool all = c_.qk_norm_all_heads;
    return &parameters.declare({name + part + ".weight",
                                {all ? heads.extent : c_.head_dim},
                                all ? by_rows({heads}) : replicated(),
                                constant(1 - norm_offset_),
                                Storage::wide,
                                false,
                                !all});
  };
  if (c_.qk_norm) q_norm_ = norm(".q_norm", query), k_norm_ = norm(".k_norm", key);
  if (c_.sinks) {
    const Run heads{c_.num_heads, c_.num_heads, false, query.key};
    sinks_ = &parameters.declare({name + ".sinks", {c_.num_heads}, by_rows({heads}), normal(m.init_std), Storage::wide, false});
  }
  num_heads_ = q_->rows() / c_.head_dim;
  num_kv_heads_ = k_->rows() / c_.head_dim;
  v_head_dim_ = o_->columns() / num_heads_;
  first_value_ = o_->first(1) % c_.head_dim;
}

template <class T>
void Attention<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const Index rows = a.stream.rows;
  const auto qkv = frame.put(Keys::qkv, rows, q_width() + 2 * k_width());
  if (c_.qk_norm) frame.put(Keys::raw, rows, q_width() + k_width());
  if (norms_heads()) frame.put(Keys::rstd, rows, num_heads_ + num_kv_heads_);
  else if (c_.qk_norm) frame.put(Keys::squares, Index(2), rows);
  const auto out = frame.put(Keys::attended, rows, out_width());
  const auto lse = frame.put(Keys::lse, rows, num_heads_);
  if (frame.wants(Keys::qkv)) project(a, frame, h.gather(), qkv, frame.first_row_wanted(Keys::qkv));
  if (frame.wants(Keys::attended)) attend_to_all(a, qkv, out, lse);
  a.show(name_, ".queries", columns(qkv, 0, q_width()), *q_);
  a.show(name_, ".keys", columns(qkv, q_width(), k_width()), *k_);
  a.show(name_, ".values", columns(qkv, q_width() + k_width(), k_width()), *v_);
  a.show(name_, ".attended", out, *o_);
  const auto gated = c_.output_gate ? gate_output(a, frame, h, out) : out;
  const auto largest = save_magnitudes<T>(a, frame, Keys::magnitudes, *o_, gated);
  if (!y.data()) return;
  adapted_linear<T>(a, {o_}, gated, y, c_.out_multiplier, beta(add), largest);
  if (c_.bias && a.holders(*o_).rank() == 0) add_bias<T>(a.dev, o_bias_->template vector<const Acc<T>>(), c_.out_multiplier, y);
}

// gated = out sigmoid(gate_proj(h)), by the GLU kernel.
template <class T>
Tensor2<T> Attention<T>::gate_output(Pass& a, Frame& frame, AllRows<T>& h, Tensor2<T> out) {
  const Index rows = out.extent(0);
  const auto gate = frame.put(Keys::gate, rows, out_width()), gated = frame.put(Keys::gated, rows, out_width());
  if (frame.wants(Keys::gate)) adapted_linear<T>(a, {gate_}, h.gather(), gate, c_.in_multiplier);
  if (frame.wants(Keys::gated)) {
    Scope scope(a.dev.scratch);
    glu<T>(a.dev, Activation::sigmoid, gate_and_output(a, gate, out), 1, gated);
  }
  a.show(name_, ".gated", gated, *o_);
  return gated;
}

// Gate and attention output next to each other, as the GLU kernel needs them, in scratch memory.
template <class T>
Tensor2<T> Attention<T>::gate_and_output(Pass& a, Tensor2<const T> gate, Tensor2<const T> out) const {
  const auto both = a.scratch<T>("output gate and attention output", Index(out.extent(0)), 2 * out_width());
  convert<T, T>(a.dev, gate, columns(both, 0, out_width()));
  convert<T, T>(a.dev, out, columns(both, out_width(), out_width()));
  return both;
}

// dout: gradient of the gated output on entry, of the attention output on return.
template <class T>
void Attention<T>::gate_backward(Pass& a, Frame& frame, Tensor2<T> dout) {
  Scope scope(a.dev.scratch);
  const Index rows = dout.extent(0);
  const auto dgate = frame.put(Keys::dgate, rows, out_width());
  const auto both = gate_and_output(a, frame.get(Keys::gate), frame.get(Keys::attended));
  const auto dboth = a.scratch<T>("gradients of output gate and attention output", rows, 2 * out_width());
  glu_backward<T>(a.dev, Activation::sigmoid, dout, both, 1, dboth);
  convert<T, T>(a.dev, columns(dboth, 0, out_width()), dgate);
  convert<T, T>(a.dev, columns(dboth, out_width(), out_width()), dout);
}

// Computes q, k and v of the rows from `first` on. q and k are normalised (with qk_norm) and rotated (RoPE), v is
// neither.
template <class T>
void Attention<T>::project(Pass& a, Frame& frame, Tensor2<const T> all_h, Tensor2<T> all_qkv, Index first) {
  const auto h = rows_from(all_h, first);
  const auto qkv = rows_from(all_qkv, first);
  adapted_linear<T>(a, {q_, k_, v_}, h, qkv, c_.in_multiplier, 0, {}, all_h);
  if (has_qkv_bias()) bias_scale<T>(a.dev, Tensor1<const Acc<T>>(q_bias_->template vector<Acc<T>>().data(), qkv.extent(1)), {}, qkv);
  if (norms_heads()) norm_heads(a, qkv, rows_from(frame.get(Keys::raw), first), rows_from(frame.get(Keys::rstd), first));
  else if (c_.qk_norm) norm_rows(a, frame, qkv, first);
  rotate<T>(a, Rotate::forward, columns(qkv, 0, q_width() + k_width()), columns(qkv, 0, q_width() + k_width()), first);
}

// Rotates queries and keys, which are next to each other in x and in y, and scales the keys.
template <class T>
template <class S>
void Attention<T>::rotate(Pass& a, Rotate way, Matrix<const S> x, Matrix<T> y, Index first) const {
  const bool in_place = std::is_same_v<S, T>;
  if (c_.rotary_dim() == 0 && c_.key_multiplier == 1 && in_place) return;  // rotation would change nothing
  Scope scope(a.dev.scratch);
  const auto [table, index] = a.rotation<Acc<T>>(c_.rope_theta, c_.rope_scaling, c_.rotary_dim(), c_.rotary_sections);
  const auto of_rows = rows_from(index, first);
  if (c_.rotary_dim() > 0 || !in_place) rope<S, T>(a.dev, way, num_heads_, 1, table, of_rows, qk(x, 0), qk(y, 0));
  rope<S, T>(a.dev, way, num_kv_heads_, c_.key_multiplier, table, of_rows, qk(x, 1), qk(y, 1));
}

template <class T>
void Attention<T>::norm_heads(Pass& a, Tensor2<T> qkv, Tensor2<T> raw, Tensor2<Acc<T>> rstd) {
  using A = Acc<T>;
  convert<T, T>(a.dev, columns(qkv, 0, q_width() + k_width()), raw);
  head_norm<T>(a.dev, qk(raw, 0), q_norm_->template vector<const A>(), eps_, qk(qkv, 0), columns(rstd, 0, num_heads_), norm_offset_);
  head_norm<T>(a.dev, qk(raw, 1), k_norm_->template vector<const A>(), eps_, qk(qkv, 1), columns(rstd, num_heads_, num_kv_heads_), norm_offset_);
}

template <class T>
void Attention<T>::norm_heads_backward(Pass& a, Frame& frame, Tensor2<T> dqkv) {
  using A = Acc<T>;
  const auto raw = frame.get(Keys::raw);
  const auto rstd = frame.get(Keys::rstd);
  head_norm_backward<T>(a.dev, qk(dqkv, 0), qk(raw, 0), q_norm_->template vector<const A>(), columns(rstd, 0, num_heads_), qk(dqkv, 0),
                        q_norm_->template vector_gradient<A>(), norm_offset_);
  head_norm_backward<T>(a.dev, qk(dqkv, 1), qk(raw, 1), k_norm_->template vector<const A>(), columns(rstd, num_heads_, num_kv_heads_), qk(dqkv, 1),
                        k_norm_->template vector_gradient<A>(), norm_offset_);
}

// The norm over all heads (qk_norm_all_heads). The sums of squares of a row are summed over the ranks that share its heads. If neighbouring ranks
// hold the same head, one of them contributes its squares.
template <class T>
void Attention<T>::norm_rows(Pass& a, Frame& frame, Tensor2<T> qkv, Index first) {
  using A = Acc<T>;
  const auto raw = rows_from(frame.get(Keys::raw), first);
  const auto squares = frame.get(Keys::squares);
  const auto of = [&](int i, Index from) { return Tensor2<A>(squares.data() + i * squares.extent(1) + from, squares.extent(1) - from, 1); };
  const Parameter* const norms[] = {q_norm_, k_norm_};
  convert<T, T>(a.dev, columns(qkv, 0, q_width() + k_width()), raw);
  if (frame.wants(Keys::squares)) {
    ensure(first == 0, "{}: the squares of {} rows are missing", name_, first);
    for (int i = 0; i < 2; ++i) {
      gated_norm_squares<T>(a.dev, GateOrder::none, qk(raw, i), qk(raw, i), of(i, 0));
      contribute_once<A>(a.dev, *norms[i], of(i, 0));
    }
    const Device::Purpose purpose(a.dev, "norm of queries and keys: rows x 2");
    a.holders(*q_).full().all_reduce(a.dev, flat(squares));
  }
  for (int i = 0; i < 2; ++i)
    gated_norm<T>(a.dev, GateOrder::none, qk(raw, i), qk(raw, i), norms[i]->template vector<const A>(), of(i, first), norms[i]->weight.shape[0], eps_,
                  qk(qkv, i));
}

// Ranks that hold the same head have a part of its gradient each. Their dot products are summed like those of other ranks, and one of them
// subtracts the sum.
template <class T>
void Attention<T>::norm_rows_backward(Pass& a, Frame& frame, Tensor2<T> dqkv) {
  using A = Acc<T>;
  Scope scope(a.dev.scratch);
  const auto raw = frame.get(Keys::raw);
  const auto squares = frame.get(Keys::squares);
  const Index rows = Index(squares.extent(1));
  const auto dots = a.scratch<A>("dot products of queries and of keys", Index(2), rows);
  const auto of = [&](const Tensor2<A>& x, int i) { return Tensor2<A>(x.data() + i * rows, rows, 1); };
  const Parameter* const norms[] = {q_norm_, k_norm_};
  for (int i = 0; i < 2; ++i)
    gated_norm_dots<T>(a.dev, GateOrder::none, qk(dqkv, i), qk(raw, i), qk(raw, i), norms[i]->template vector<const A>(), of(squares, i),
                       norms[i]->weight.shape[0], eps_, of(dots, i), norms[i]->template vector_gradient<A>());
  {
    const Device::Purpose purpose(a.dev, "norm of queries and keys, backward: rows x 2");
    a.holders(*q_).full().all_reduce(a.dev, flat(dots));
  }
  for (int i = 0; i < 2; ++i) {
    contribute_once<A>(a.dev, *norms[i], of(dots, i));
    gated_norm_backward<T>(a.dev, GateOrder::none, qk(dqkv, i), qk(raw, i), qk(raw, i), norms[i]->template vector<const A>(), of(squares, i),
                           of(dots, i), norms[i]->weight.shape[0], eps_, qk(dqkv, i), qk(raw, i));
  }
}

template <class T>
void Attention<T>::attend_to_all(Pass& a, Tensor2<T> qkv, Tensor2<T> out, Tensor2<Acc<T>> lse) {
  const auto q = columns(qkv, 0, q_width()), k = columns(qkv, q_width(), k_width()), v = columns(qkv, q_width() + k_width(), k_width());
  const Device::Purpose purpose(a.dev, "attention (context parallel): queries, keys, values or outputs of a rank's rows");
  Scope scope(a.dev.scratch);
  const ScoreRule scores = this->scores(a, false);
  if (a.context) context_attention<T>(a, shape(0, 0, 0), scores, c_.window)->forward(q, k, channels<T>(v), out, lse, sinks());
  else attend_local(a, scores, qkv, out, lse);
  contribute_once<T>(a.dev, *o_, out);
}

template <class T>
void Attention<T>::attend_local(Pass& a, const ScoreRule& scores, Tensor2<T> qkv, Tensor2<T> out, Tensor2<Acc<T>> lse) {
  Scope scope(a.dev.scratch);
  const AttentionState<Acc<T>> state = online_softmax_state<T>(a, out, lse);
  if (a.state) attend_with_past(a, scores, qkv, state);
  else attend(a, scores, qkv, state);
  attention_finish<T>(a.dev, shape(a.sequences.batch, a.sequences.seq_length, a.sequences.seq_length), state, out, lse, sinks().values);
}

template <class T>
void Attention<T>::attend(Pass& a, const ScoreRule& scores, Tensor2<T> qkv, AttentionState<Acc<T>> state) {
  const auto q = columns(qkv, 0, q_width()), k = columns(qkv, q_width(), k_width()), v = columns(qkv, q_width() + k_width(), k_width());
  attention<T>(a.dev, shape(a.sequences.batch, a.sequences.seq_length, a.sequences.seq_length), mask(a), scores, q, k, channels<T>(v), Carry::fresh,
               state);
}

template <class T>
ScoreRule Attention<T>::scores(Pass& a, bool backward) const {
  ScoreRule scores = scores_;
  scores.bias = distance_bias_of<Acc<T>>(a, c_.relative_bias, backward);
  scores.dropout = a.dropout(name_, dropped_);
  scores.dropout.first_head = q_->first(0) / c_.head_dim;
  return scores;
}

template <class T>
auto Attention<T>::sinks() const -> Sinks<Acc<T>> {
  if (!sinks_) return {};
  return {sinks_->template vector<const Acc<T>>(), sinks_->trained ? sinks_->template vector_gradient<Acc<T>>() : Tensor1<Acc<T>>()};
}

template <class T>
Mask Attention<T>::mask(const Pass& a) const {
  Mask mask = a.mask;
  mask.window = c_.window;
  return mask;
}

// Attention with a KV cache (generation). One token per sequence: a single call for all sequences, unless there is a
// relative bias. More tokens: sequence by sequence, because each has its own past length. A full-length cache: the new
// K and V are appended, then the queries attend to all of it. A sliding-window cache holds the last window - 1 tokens,
// the token at position p in row p % rows. The queries attend to its older part, to its newer part and to the new K and
// V, which then overwrite the oldest rows.
template <class T>
void Attention<T>::attend_with_past(Pass& a, const ScoreRule& scores, Tensor2<T> qkv, AttentionState<Acc<T>> state) {
  const Index seq_length = a.sequences.seq_length, width = 2 * k_width(), capacity = a.state->capacity();
  const bool holds_all = c_.window == 0 || c_.window >= capacity;
  const Index held = holds_all ? capacity : c_.window - 1;
  auto cache = a.state->tensor(a.dev, this, Keys::cache, held, width);
  if (seq_length == 1 && !scores.bias) {
    const KeyCache<T> all = kv_cache(a, cache, k_width() + first_value_, holds_all);
    const Matrix<T> x(qkv);
    return attention_step<T>(a.dev, shape(a.sequences.batch, 1, held), scores, columns(x, 0, q_width()), columns(x, q_width(), width), all,
                             tokens_before(a), state);
  }
  for (Index b = 0; b < a.sequences.batch; ++b) {
    const Index past = a.sequences.past_of(b), first = b * seq_length;
    const Tensor2<T> mine(cache.data() + (a.sequences.first_sequence + b) * held * width, held, width);
    const Matrix<T> fresh = Matrix<T>(qkv).block(first, seq_length, q_width(), width);
    Carry carry = Carry::fresh;
    const auto attend_to = [&](const Matrix<T>& kv, Index first_key) {
      Mask mask = this->mask(a);
      mask.first_query += past, mask.first_key = first_key;
      attention<T>(a.dev, shape(1, seq_length, kv.rows), mask, scores, Matrix<T>(qkv).block(first, seq_length, 0, q_width()),
                   columns(kv, 0, k_width()), channels<T>(columns(kv, k_width(), k_width())), carry,
                   {rows(state.o, first, seq_length), rows(state.m, first, seq_length), rows(state.l, first, seq_length)});
      carry = Carry::continued;
    };
    if (holds_all) {
      convert<T, T>(a.dev, fresh, rows(mine, past, seq_length));
      attend_to(rows(mine, 0, past + seq_length), 0);
    } else {
      const Index newer = held > 0 ? past % held : 0;
      if (held > 0 && past >= held) attend_to(mine, past - newer - held);  // its newer rows get positions so old that the window masks them
      if (newer > 0) attend_to(rows(mine, 0, newer), past - newer);
      attend_to(fresh, past);
      update_window_cache(a, fresh, past, mine);
    }
  }
}

template <class T>
void Attention<T>::update_window_cache(Pass& a, Matrix<const T> kv, Index past, Tensor2<T> cache) {
  const Index held = Index(cache.extent(0));
  for (Index at = kv.rows - std::min(kv.rows, held); at < kv.rows;) {
    const Index row = (past + at) % held, count = std::min(kv.rows - at, held - row);
    convert<T, T>(a.dev, kv.block(at, count, 0, kv.columns), rows(cache, row, count));
    at += count;
  }
}

template <class T>
void Attention<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  using A = Acc<T>;
  const auto lse = frame.get(Keys::lse);
  const auto out = frame.get(Keys::attended), qkv = frame.get(Keys::qkv);
  const Index rows = dy.extent(0);
  Scope scope(a.dev.scratch);

  auto dout = a.scratch<T>("gradient of attention output", rows, out_width());
  adapted_linear_backward_input<T>(a, {o_}, dy, dout, c_.out_multiplier);
  contribute_once<T>(a.dev, *o_, dout);
  if (c_.bias) biases_backward<T>(a.dev, {o_bias_}, dy, c_.out_multiplier);
  if (c_.output_gate) gate_backward(a, frame, dout);

  auto delta = a.scratch<A>("delta", rows, num_heads_);
  const auto dqkv = frame.put(Keys::dqkv, rows, qkv.extent(1));
  Tensor2<A> dwide;
  if constexpr (std::is_same_v<T, A>) dwide = dqkv;
  else dwide = a.scratch<A>("fp32 gradient of qkv", rows, Index(qkv.extent(1)));
  fill<A>(a.dev, flat(dwide), 0);
  const auto part = [&](const auto& x, int i) { return i == 0 ? columns(x, 0, q_width()) : columns(x, q_width() + (i - 1) * k_width(), k_width()); };
  const auto all = shape(a.sequences.batch, a.sequences.seq_length, a.sequences.seq_length);
  attention_delta<T>(a.dev, all, dout, out, delta);
  const auto q = part(qkv, 0), k = part(qkv, 1), v = channels<T>(part(qkv, 2));
  const auto dq = part(dwide, 0), dk = part(dwide, 1), dv = channels<A>(part(dwide, 2));
  const Device::Purpose purpose(a.dev, "attention backward (context parallel): queries, keys, values and gradients of a rank's rows");
  const ScoreRule scores = this->scores(a, true);
  if (a.context) {
    context_attention<T>(a, shape(0, 0, 0), scores, c_.window)->backward(q, k, v, dout, lse, delta, dq, dk, dv, sinks());
  } else {
    attention_backward<T>(a.dev, all, mask(a), scores, q, k, v, dout, lse, delta, dq, dk, dv);
    sinks_backward<Acc<T>>(a, sinks(), lse, delta);
  }
  add_to_table<A>(a, c_.relative_bias, scores.bias);

  if constexpr (!std::is_same_v<T, A>) convert<A, T>(a.dev, part(dwide, 2), part(dqkv, 2));
  rotate<A>(a, Rotate::backward, columns(dwide, 0, q_width() + k_width()), columns(dqkv, 0, q_width() + k_width()));
  if (norms_heads()) norm_heads_backward(a, frame, dqkv);
  else if (c_.qk_norm) norm_rows_backward(a, frame, dqkv);
  if (has_qkv_bias()) biases_backward<T>(a.dev, {q_bias_, k_bias_, v_bias_}, dqkv);
  adapted_linear_backward_input<T>(a, {q_, k_, v_}, dqkv, dh, c_.in_multiplier, beta(add));
  if (c_.output_gate) adapted_linear_backward_input<T>(a, {gate_}, frame.get(Keys::dgate), dh, c_.in_multiplier, 1);
}

template <class T>
void Attention<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  adapted_weights_backward<T>(a, {o_}, dy, frame.get(c_.output_gate ? Keys::gated : Keys::attended), c_.out_multiplier, frame.get(Keys::magnitudes));
  if (c_.output_gate) adapted_weights_backward<T>(a, {gate_}, frame.get(Keys::dgate), h, c_.in_multiplier);
  adapted_weights_backward<T>(a, {q_, k_, v_}, frame.get(Keys::dqkv), h, c_.in_multiplier);
}

void read_rope_scaling(Section& s, RopeScaling& c) {
  c.type = get_word(
      s, "type", c.type, {"none", "linear", "llama3", "yarn", "dynamic"},
      "RoPE scaling method (rope_type), which lowers frequencies; dynamic: by the length of each sequence, in generation of its tokens so far");
  c.factor = s.get("factor", c.factor, "RoPE scaling factor: extended context length / original_length").at_least(1).finite();
  c.original_positions =
      s.get("original_length", c.original_positions, "context length of the original pretraining (original_max_position_embeddings)")
          .unit("tokens")
          .positive()
          .at_most(longest);
  c.low_freq_factor = s.get("low_freq_factor", c.low_freq_factor,
                            "rotations over original_length below which a frequency is divided by factor (llama3; yarn: beta_slow)")
                          .positive()
                          .finite();
  c.high_freq_factor = s.get("high_freq_factor", c.high_freq_factor,
                             "rotations over original_length above which a frequency is unchanged (llama3; yarn: beta_fast, usually 32)")
                           .positive()
                           .finite();
  c.attention_factor = s.get("attention_factor", c.attention_factor, "yarn: scale of q and k; 0: 0.1 ln(factor) + 1").at_least(0).finite();
  c.truncate = s.get("truncate", c.truncate, "yarn: round the first and last channel pair of the interpolation range outwards");
}

void read_relative_bias(Section& s, RelativeBiasConfig& c) {
  c.buckets = s.get("buckets", c.buckets,
                    "buckets of query-key distances (relative_attention_num_buckets), half of them for one distance each; 0: no relative bias")
                  .at_least(0)
                  .at_most(DistanceBuckets::most);
  c.max_distance = s.get("max_distance", c.max_distance, "distance from which on all tokens share the last bucket (relative_attention_max_distance)")
                       .unit("tokens")
                       .positive()
                       .at_most(longest);
}

void read_attention(Section& s, ModelConfig& m) {
  AttentionConfig& c = m.attention;
  c.num_heads =
      s.get("num_heads", c.num_heads, "query heads (num_attention_heads), sharded over the tensor-parallel ranks").positive().at_most(widest);
  c.num_kv_heads = s.get("num_kv_heads", c.num_kv_heads,
                         "key/value heads (num_key_value_heads); if fewer than tensor-parallel ranks, neighbouring ranks hold the same head")
                       .positive()
                       .at_most(widest);
  c.head_dim = s.get("head_dim", c.head_dim, "channels per head (Megatron: --kv-channels)").positive().at_most(widest);
  c.rope_theta = s.get("rope_theta", c.rope_theta, "base of the rotary position embedding (RoPE)").positive();
  c.rotary_fraction = s.get("rotary_fraction", c.rotary_fraction,
                            "fraction of each head's channels that RoPE rotates, the first ones (partial_rotary_factor); 0: no RoPE")
                          .at_least(0)
                          .at_most(1);
  read_rope_scaling(s.section("rope", "RoPE scaling to contexts longer than those of the original pretraining (rope_scaling)"), c.rope_scaling);
  c.bias = s.get("bias", c.bias, "biases of q_proj, k_proj, v_proj and o_proj (attention_bias)");
  c.qkv_bias = s.get("qkv_bias", c.qkv_bias, "biases of q_proj, k_proj and v_proj only (Megatron: --add-qkv-bias)");
  c.qk_norm = s.get("qk_norm", c.qk_norm, "RMSNorm of each query and key head before RoPE (Megatron: --qk-layernorm)");
  c.qk_norm_all_heads =
      s.get("qk_norm_all_heads", c.qk_norm_all_heads,
            "with qk_norm: one RMSNorm over the queries of all heads of a row, and one over its keys, with a weight per channel (OLMo 2)");
  c.soft_cap = s.get("soft_cap", c.soft_cap, "soft cap of attention scores (attn_logit_softcapping): soft_cap tanh(score / soft_cap); 0: no cap")
                   .at_least(0)
                   .finite();
  read_relative_bias(s.section("relative_bias", "relative position bias, added to attention scores by the distance from query to key (T5)"),
                     c.relative_bias);
  c.output_gate =
      s.get("output_gate", c.output_gate,
            "attention output is multiplied by sigmoid(gate_proj(h)) before o_proj, as in Qwen3-Next (Megatron: --attention-output-gate)");
  c.sinks = s.get("sinks", c.sinks, "attention sinks (gpt-oss): one learned score per head that joins the softmax but has no value");
  c.causal = s.get("causal", c.causal, "causal mask; false: bidirectional, every token attends to its full document");
  c.in_multiplier = s.get("in_multiplier", c.in_multiplier, "factor on the normed input (attention_in_multiplier)");
  c.key_multiplier = s.get("key_multiplier", c.key_multiplier, "factor on the keys (key_multiplier)");
  c.out_multiplier = s.get("out_multiplier", c.out_multiplier, "factor on the output (attention_out_multiplier)");
}

void read_window(Section& s, ModelConfig& m) {
  WindowConfig& c = m.window;
  c.size = s.get("size", c.size, "tokens that a query attends to, its own included (sliding_window); if not causal, as many on either side")
               .unit("tokens")
               .positive()
               .at_most(longest);
  c.rope_theta =
      s.get("rope_theta", c.rope_theta, "RoPE base of window layers, without scaling (rope_local_base_freq); 0: base and scaling of model.attention")
          .at_least(0)
          .finite();
  c.rotary = s.get("rotary", c.rotary, "RoPE in window layers; false: none (NoPE layers of SmolLM3: no_rope_layers)");
}

ModelConfig with_window(ModelConfig m) {
  m.attention.window = m.window.size;
  if (m.window.rope_theta > 0) m.attention.rope_theta = m.window.rope_theta, m.attention.rope_scaling = {};
  if (!m.window.rotary) m.attention.rotary_fraction = 0;
  return m;
}

HeadCounts attention_heads(const ModelConfig& m) { return {m.attention.num_heads, m.attention.num_kv_heads}; }

LayerFlops attention_flops(const ModelConfig& m, const TextLengths& lengths) {
  const double T = double(lengths.text), w = double(m.attention.window);
  const double keys = m.attention.window > 0 && w < T ? w - w * w / (2 * T) : T / 2;  // average number of visible keys per query
  const double q = double(m.attention.num_heads) * m.attention.head_dim, k = double(m.attention.num_kv_heads) * m.attention.head_dim;
  LayerFlops f;
  f.gemms = 2.0 * m.hidden_size * ((m.attention.output_gate ? 2 : 1) * q + 2 * k) + 2.0 * q * m.hidden_size;
  f.attention = 4.0 * (m.attention.causal ? keys : 2 * keys) * q;
  return f;
}

template class Attention<double>;
template class Attention<float>;
template class Attention<bf16>;

}  // namespace gyr
