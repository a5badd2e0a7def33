// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/cross_attention.hpp"

#include <cmath>

#include "modules/context/context_attention.hpp"
#include "modules/layers/attention.hpp"
#include "modules/layers/retrieval_decoding.hpp"
#include "modules/weights/contribution.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

OperatorChain cross_attention_operators(const ModelConfig& m, const std::string& name) {
  const AttentionConfig& c = m.attention;
  const auto [queries, keys, attended] = head_runs(c);
  const Channels stream = undivided(m.hidden_size);
  return {gemm_operator("queries", stream, by_units({queries}), {name + ".q_proj"}, c.bias || c.qkv_bias),
          over_tokens("cross-attention", by_units({queries}), by_units({attended})),
          gemm_operator("output", by_units({attended}), stream, {name + ".o_proj"}, c.bias)};
}

OperatorChain source_operators(const ModelConfig& m, const std::string& name) {
  const Run keys = head_runs(m.attention).keys;
  return {gemm_operator("keys, values", undivided(encoder_config(m).hidden_size), by_units({keys, keys}), {name + ".k_proj", name + ".v_proj"},
                        m.attention.bias || m.attention.qkv_bias)};
}

template <class T>
CrossAttention<T>::CrossAttention(const ModelConfig& m, const std::string& name, Parameters& parameters, const CrossRule& rule)
    : c_(m.attention), name_(name), dropped_(m.dropout.attention), scores_(c_.key_multiplier / std::sqrt(double(c_.head_dim)), c_.soft_cap),
      rule_(rule) {
  using P = Parameters;
  const auto [query, key, attended] = head_runs(c_);
  const Index source_width = encoder_config(m).hidden_size;
  const auto matrix = [&](const char* part, const Run& rows, P::Fit fit, bool of_source) {
    Weight w{name + part + ".weight", {rows.extent, of_source ? source_width : m.hidden_size}, by_rows({rows}), normal(m.init_std), Storage::factor};
    w.of_source = of_source != reads_chunk();  // the queries of rows of neighbours belong to the source
    return &parameters.declare(std::move(w), fit);
  };
  const auto bias = [&](const char* part, const Run& rows, P::Fit fit) {
    return &parameters.declare({name + part + ".bias", {rows.extent}, by_rows({rows}), zeros(), Storage::wide, false}, fit);
  };
  q_ = matrix(".q_proj", query, P::Fit::aligned, false);
  k_ = matrix(".k_proj", key, P::Fit::aligned, true);
  v_ = matrix(".v_proj", key, P::Fit::adjacent, true);
  Weight out{name + ".o_proj.weight", {m.hidden_size, attended.extent}, by_columns({attended}), normal(m.init_std), Storage::factor};
  out.of_source = reads_chunk();
  o_ = &parameters.declare(std::move(out));
  if (c_.bias || c_.qkv_bias) {
    q_bias_ = bias(".q_proj", query, P::Fit::aligned);
    k_bias_ = bias(".k_proj", key, P::Fit::aligned);
    v_bias_ = bias(".v_proj", key, P::Fit::adjacent);
  }
  if (c_.bias) o_bias_ = &parameters.declare({name + ".o_proj.bias", {m.hidden_size}, replicated(), zeros(), Storage::wide, false});
  num_heads_ = q_->rows() / c_.head_dim;
  num_kv_heads_ = k_->rows() / c_.head_dim;
  v_head_dim_ = o_->columns() / num_heads_;
  first_value_ = o_->first(1) % c_.head_dim;
}

// k_proj and v_proj are adjacent in memory, so that one GEMM serves both.
template <class T>
Matrix<const T> CrossAttention<T>::w_kv() const {
  const auto k = k_->template matrix<const T>();
  return {k.data(), 2 * k_width(), Index(k.extent(1)), Index(k.extent(1))};
}

template <class T>
void CrossAttention<T>::forward(Pass& a, Frame& frame, AllRows<T>& h, Add add, Tensor2<T> y) {
  const Index rows = a.stream.rows;
  const auto q = frame.put(Keys::q, rows, q_width());
  const auto out = frame.put(Keys::attended, rows, out_width());
  const auto lse = frame.put(Keys::lse, query_rows(a), num_heads_);
  if (frame.wants(Keys::q)) {
    linear<T>(a.dev, h.gather(), q_->template factor<T>(), q, c_.in_multiplier);
    if (q_bias_) bias_scale<T>(a.dev, q_bias_->template vector<const A>(), {}, q);
  }
  if (a.source) {
    const auto encoded = a.encoded.values.template as<T>();
    if (!reads_chunk()) frame.refer(Keys::source, encoded);
    if (a.state && !reads_neighbours()) {
      remember(a, encoded);
    } else if (rows_before(a) > 0 || exchanges(a)) {
      project_neighbours(a, frame, encoded);
    } else {
      const auto kv = frame.put(Keys::kv, a.source->stream.rows, 2 * k_width());
      if (frame.wants(Keys::kv)) project_source(*a.source, encoded, kv);
      if (a.state) keep_neighbours(a, kv);
    }
  }
  if (frame.wants(Keys::attended)) attend(a, frame, out, lse);
  if (!y.data()) return;
  linear<T>(a.dev, out, o_->template factor<T>(), y, c_.out_multiplier, beta(add));
  if (o_bias_ && a.holders(*o_).rank() == 0) add_bias<T>(a.dev, o_bias_->template vector<const A>(), c_.out_multiplier, y);
}

// Rows of the source on all tensor-parallel ranks. A chunk of the text is given with all of its rows.
template <class T>
Tensor2<T> CrossAttention<T>::all_rows(Pass& source, Tensor2<T> encoded) const {
  return reads_chunk() ? encoded : AllRows<T>(source, "encoder output, all rows", encoded).gather();
}

template <class T>
void CrossAttention<T>::project_source(Pass& source, Tensor2<T> encoded, Tensor2<T> kv) const {
  Scope scope(source.dev.scratch);
  linear<T>(source.dev, all_rows(source, encoded), k_->template factor<T>(2 * k_width()), kv);
  if (k_bias_) bias_scale<T>(source.dev, Tensor1<const A>(k_bias_->template vector<A>().data(), kv.extent(1)), {}, kv);
}

// Keys and values of the neighbours of this rank's chunks, then of those before its blocks. The first layer receives these.
template <class T>
void CrossAttention<T>::project_neighbours(Pass& a, Frame& frame, Tensor2<T> encoded) {
  const Index own = a.source->stream.rows, others = rows_before(a);
  Scope scope(a.dev.scratch);
  if (exchanges(a)) a.encoded_before.values = AnyTensor2(frame.put(Keys::before, others, Index(encoded.extent(1))));
  else frame.refer(Keys::before, a.encoded_before.values.template as<T>());
  const auto kv = frame.put(Keys::kv, own + others, 2 * k_width());
  const bool arrives = exchanges(a) && frame.wants(Keys::before);
  if (!arrives && !frame.wants(Keys::kv)) return;
  const auto all = all_rows(*a.source, encoded), before = a.encoded_before.values.template as<T>();
  if (arrives) halo(a).forward(all, before);
  const auto w = k_->template factor<T>(2 * k_width());
  linear<T>(a.dev, all, w, rows(kv, 0, own));
  if (others > 0) linear<T>(a.dev, before, w, rows(kv, own, others));
  if (k_bias_) bias_scale<T>(a.dev, Tensor1<const A>(k_bias_->template vector<A>().data(), kv.extent(1)), {}, kv);
}

namespace {

// Calls copy(rows in rank order, the same rows in token order) for each block of contiguous tokens.
template <class S, class Copy>
void for_blocks(const SequenceLayout& s, Tensor2<S> by_rank, Tensor2<S> in_order, const Copy& copy) {
  const Index length = s.block_length();
  for (Index rank = 0; rank < s.ranks; ++rank)
    for (Index b = 0; b < s.batch; ++b)
      for (Index i = 0; i < s.blocks(); ++i)
        copy(Matrix<S>(rows(by_rank, rank * s.rows() + b * s.seq_length + i * length, length)),
             Matrix<S>(rows(in_order, b * s.ranks * s.seq_length + s.block(rank, i) * length, length)));
}

}  // namespace

template <class T>
Tensor2<T> CrossAttention<T>::of_all_ranks(Pass& source, Tensor2<T> kv) const {
  if (!source.context || reads_chunk()) return kv;  // the chunks of a rank have all their neighbours on it
  const Device::Purpose purpose(source.dev, "cross-attention: keys and values of the encoder output");
  const Index all = source.sequences.ranks * source.sequences.rows();
  const auto in_order = source.template scratch<T>("keys and values of all ranks, in token order", all, 2 * k_width());
  Scope scope(source.dev.scratch);
  const auto gathered = source.template scratch<T>("keys and values of all ranks, in rank order", all, 2 * k_width());
  source.context->template all_gather<T>(source.dev, flat(kv), flat(gathered));
  for_blocks(source.sequences, gathered, in_order, [&](const Matrix<T>& from, const Matrix<T>& to) { convert<T, T>(source.dev, from, to); });
  return in_order;
}

template <class T>
void CrossAttention<T>::reduce_scatter_to_local(Pass& source, Tensor2<A> all, Tensor2<A> local) const {
  const Device::Purpose purpose(source.dev, "cross-attention backward: gradient of keys and values of the encoder output");
  Scope scope(source.dev.scratch);
  const auto by_rank = source.template scratch<A>("gradient of keys and values, in rank order", Index(all.extent(0)), 2 * k_width());
  for_blocks(source.sequences, by_rank, all, [&](const Matrix<A>& to, const Matrix<A>& from) { convert<A, A>(source.dev, from, to); });
  source.context->template reduce_scatter<A>(source.dev, flat(by_rank), flat(local));
}

template <class T>
ScoreRule CrossAttention<T>::scores(const Pass& a) const {
  ScoreRule scores = scores_;
  scores.dropout = a.dropout(name_, dropped_);
  scores.dropout.first_head = q_->first(0) / c_.head_dim;
  return scores;
}

// Query rows in the calls of the kernels. The rows of chunked cross-attention begin with the last token of the first chunk,
// and rows after the end of a sequence complete its last chunk.
template <class T>
Index CrossAttention<T>::query_rows(const Pass& a) const {
  if (!gathers_chunks(a)) return a.stream.rows;
  return a.source->sequences.batch / rule_.neighbours * rule_.chunk + chunks_before(a) * (rule_.chunk - 1);
}

// Calls copy(first row in chunks, first row of the text, rows) for each block of contiguous tokens, then for the first rows
// of each block that follows another one.
template <class T>
template <class Copy>
void CrossAttention<T>::for_sequences(const Pass& a, const Copy& copy) const {
  const SequenceLayout& s = a.sequences;
  const Index length = s.block_length(), blocks = s.batch * s.blocks(), first = first_chunk(a) - 1, before = chunks_before(a) * first;
  const Index in_chunks = (query_rows(a) - before) / blocks;
  for (Index b = 0; b < blocks; ++b) copy(b * in_chunks, b * length + first, std::min(length - first, in_chunks));
  for (Index b = 0, to = blocks * in_chunks; before > 0 && b < blocks; ++b)
    if (s.block(s.rank, b % s.blocks()) > 0) copy(to, b * length, first), to += first;
}

// Rows of the text as rows of queries: x itself, or a copy in scratch memory that is shifted by o - 1 rows.
template <class T>
Tensor2<T> CrossAttention<T>::in_chunks(const Pass& a, const char* name, Tensor2<T> x) const {
  if (!gathers_chunks(a)) return x;
  const auto chunks = a.scratch<T>(name, query_rows(a), Index(x.extent(1)));
  fill<T>(a.dev, flat(chunks), 0);
  for_sequences(
      a, [&](Index to, Index from, Index count) { convert<T, T>(a.dev, Matrix<const T>(rows(x, from, count)), Matrix<T>(rows(chunks, to, count))); });
  return chunks;
}

// The inverse: rows that see no chunk become 0.
template <class T>
template <class S>
void CrossAttention<T>::from_chunks(const Pass& a, Tensor2<S> chunks, Tensor2<T> x) const {
  if (!gathers_chunks(a)) {
    if (static_cast<const void*>(chunks.data()) != x.data()) convert<S, T>(a.dev, Matrix<const S>(chunks), Matrix<T>(x));
    return;
  }
  fill<T>(a.dev, flat(x), 0);
  for_sequences(
      a, [&](Index from, Index to, Index count) { convert<S, T>(a.dev, Matrix<const S>(rows(chunks, from, count)), Matrix<T>(rows(x, to, count))); });
}

// One call for the n-th neighbours of all chunks: the queries of each chunk see its neighbour, or those of each neighbour
// its chunk. Another one for those of the chunks before blocks.
template <class T>
template <class Attend>
void CrossAttention<T>::for_neighbours(const Pass& a, const Attend& attend_to) const {
  const SequenceLayout& neighbours = reads_chunk() ? a.sequences : a.source->sequences;
  const Index chunks = neighbours.batch / rule_.neighbours, m = rule_.chunk, r = neighbours.seq_length, of_chunks = chunks * m, read = chunks * r;
  const Index before = chunks_before(a), queries = of_chunks + before * (m - 1);
  for (Index n = 0; n < rule_.neighbours; ++n) {
    if (reads_chunk()) {
      const ChunksOfText of_text(a.source->sequences, chunks, m);
      ensure(a.source->stream.rows == of_text.rows(), "{} rows of the text are no {} chunks of {}", a.source->stream.rows, chunks, m);
      of_text.each([&](Index chunk, Index count, Index length, Index row) {
        const Index first = n * read + chunk * r;
        const Mask seen{false, 0, 0, a.sequences.visible_encoder_range.of_rows(first, count * r), 0, n * chunks + chunk};
        attend_to(shape(count, r, length), seen, first, count * r, row, count * length, Carry::fresh);
      });
    } else {
      const Carry carry = n == 0 ? Carry::fresh : Carry::continued;
      const auto seen = [&](Index first, Index count) {
        return Mask{false, 0, 0, a.sequences.visible_encoder_range.of_rows(n * queries + first, count)};
      };
      attend_to(shape(chunks, m, r), seen(0, of_chunks), 0, of_chunks, n * read, read, carry);
      if (before == 0) continue;
      const Index others = queries - of_chunks, first_key = rule_.neighbours * read + n * before * r;
      attend_to(shape(before, m - 1, r), seen(of_chunks, others), of_chunks, others, first_key, before * r, carry);
    }
  }
}

// Calls attend_to(shape, mask, first query row, query rows, first key row, key rows, carry) for queries of contiguous tokens:
// once for all rows, or once per block with context parallelism.
template <class T>
template <class Attend>
void CrossAttention<T>::for_queries(const Pass& a, Index keys, const Attend& attend_to) const {
  const SequenceLayout& s = a.sequences;
  const Documents& seen = s.visible_encoder_range;
  if (rule_.seen != SourceRows::all) return for_neighbours(a, attend_to);
  if (!s.shared()) return attend_to(shape(s.batch, s.seq_length, keys), Mask{false, 0, 0, seen}, 0, s.rows(), 0, s.batch * keys, Carry::fresh);
  const Index length = s.block_length();
  for (Index b = 0; b < s.batch; ++b)
    for (Index i = 0; i < s.blocks(); ++i) {
      const Index first = b * s.seq_length + i * length;
      Mask mask{false, s.block(s.rank, i) * length, 0, seen.of_rows(first, length)};
      mask.first_sequence = b;
      attend_to(shape(1, length, keys), mask, first, length, b * keys, keys, Carry::fresh);
    }
}

template <class T>
void CrossAttention<T>::attend(Pass& a, Frame& frame, Tensor2<T> out, Tensor2<A> lse) const {
  Scope scope(a.dev.scratch);
  const Index batch = a.sequences.batch;
  const auto q = in_chunks(a, "queries of chunks", frame.get(Keys::q));
  const auto placed = gathers_chunks(a) ? a.scratch<T>("attention output of chunks", query_rows(a), out_width()) : out;
  const AttentionState<A> state = online_softmax_state<T>(a, placed, lse);
  if (sees_cached(a)) {
    attend_to_cached(a, q, state);
  } else if (a.state && !reads_neighbours()) {
    attend_with_past(a, q, state);
  } else {
    const Tensor2<T> kv = of_all_ranks(*a.source, frame.get(Keys::kv));
    for_queries(a, Index(kv.extent(0)) / batch,
                [&](const AttentionShape& part, const Mask& mask, Index first, Index rows_of_q, Index first_key, Index keys_of_kv, Carry carry) {
                  const Matrix<T> met = rows(kv, first_key, keys_of_kv);
                  attention<T>(a.dev, part, mask, scores(a), Matrix<T>(q).block(first, rows_of_q, 0, q_width()), keys<T>(met), values<T>(met), carry,
                               {rows(state.o, first, rows_of_q), rows(state.m, first, rows_of_q), rows(state.l, first, rows_of_q)});
                });
  }
  attention_finish<T>(a.dev, shape(1, Index(q.extent(0)), 0), state, placed, lse);
  from_chunks<T>(a, placed, out);
  contribute_once<T>(a.dev, *o_, out);
}

// The encoder output is read once, when a sequence begins. Its keys and values stay in the cache.
template <class T>
void CrossAttention<T>::remember(Pass& a, Tensor2<T> encoded) const {
  const Index width = 2 * k_width(), held = a.state->source_capacity(), n = a.source->stream.rows;
  ensure(a.sequences.batch == 1 && n <= held, "encoder output of {} tokens for {} sequences; the cache takes one sequence of at most {} tokens", n,
         a.sequences.batch, held);
  const auto cache = a.state->tensor(a.dev, this, Keys::cache, held, width);
  project_source(*a.source, encoded, Tensor2<T>(cache.data() + a.sequences.first_sequence * held * width, n, width));
}

template <class T>
void CrossAttention<T>::attend_with_past(Pass& a, Tensor2<T> q, const AttentionState<A>& state) const {
  const Index queries = a.sequences.seq_length, width = 2 * k_width(), held = a.state->source_capacity();
  const auto cache = a.state->tensor(a.dev, this, Keys::cache, held, width);
  for (Index b = 0; b < a.sequences.batch; ++b) {
    const Index n = a.sequences.source_lengths.at(b), first = b * queries;
    const Matrix<T> kv(Tensor2<T>(cache.data() + (a.sequences.first_sequence + b) * held * width, n, width));
    attention<T>(a.dev, shape(1, queries, n), {false}, scores_, Matrix<T>(q).block(first, queries, 0, q_width()), keys<T>(kv), values<T>(kv),
                 Carry::fresh, {rows(state.o, first, queries), rows(state.m, first, queries), rows(state.l, first, queries)});
  }
}

template <class T>
void CrossAttention<T>::backward(Pass& a, Frame& frame, Tensor2<const T> dy, Add add, Tensor2<T> dh) {
  const auto lse = frame.get(Keys::lse);
  const Index rows = dy.extent(0), batch = a.sequences.batch, local = a.source->stream.rows + rows_before(a), queries = query_rows(a);
  Scope scope(a.dev.scratch);
  const auto dout_of_rows = a.scratch<T>("gradient of attention output", rows, out_width());
  linear_backward_input<T>(a.dev, dy, o_->template matrix<const T>(), dout_of_rows, c_.out_multiplier);
  contribute_once<T>(a.dev, *o_, dout_of_rows);
  const auto out = in_chunks(a, "attention output of chunks", frame.get(Keys::attended)), q = in_chunks(a, "queries of chunks", frame.get(Keys::q)),
             dout = in_chunks(a, "gradient of attention output of chunks", dout_of_rows);
  if (o_bias_) biases_backward<T>(a.dev, {o_bias_}, dy, c_.out_multiplier);

  const auto zero = [&](const char* name, Index rows, Index columns) {
    const auto x = a.scratch<A>(name, rows, columns);
    fill<A>(a.dev, flat(x), 0);
    return x;
  };
  const Tensor2<T> kv = of_all_ranks(*a.source, frame.get(Keys::kv));
  const Index all = kv.extent(0);
  const auto delta = a.scratch<A>("delta", queries, num_heads_);
  const Tensor2<A> dq_wide = zero("gradient of queries (accumulator precision)", queries, q_width()),
                   dkv_all = zero("gradient of keys and values of all tokens", all, 2 * k_width());
  attention_delta<T>(a.dev, shape(1, queries, 0), dout, out, delta);
  for_queries(a, all / batch,
              [&](const AttentionShape& part, const Mask& mask, Index first, Index rows_of_q, Index first_key, Index keys_of_kv, Carry) {
                const Matrix<T> met = gyr::rows(kv, first_key, keys_of_kv);
                const Matrix<A> dmet = gyr::rows(dkv_all, first_key, keys_of_kv);
                attention_backward<T>(a.dev, part, mask, scores(a), Matrix<T>(q).block(first, rows_of_q, 0, q_width()), keys<T>(met), values<T>(met),
                                      gyr::rows(dout, first, rows_of_q), gyr::rows(lse, first, rows_of_q), gyr::rows(delta, first, rows_of_q),
                                      Matrix<A>(dq_wide).block(first, rows_of_q, 0, q_width()), keys<A>(dmet), values<A>(dmet));
              });
  Tensor2<A> dkv_wide = dkv_all;
  if (a.source->context && !reads_chunk()) {
    dkv_wide = a.scratch<A>("gradient of keys and values of own tokens", local, 2 * k_width());
    reduce_scatter_to_local(*a.source, dkv_all, dkv_wide);
  }

  const auto dq = frame.put(Keys::dq, rows, q_width()), dkv = frame.put(Keys::dkv, local, 2 * k_width());
  from_chunks<A>(a, dq_wide, dq);
  convert<A, T>(a.dev, Matrix<const A>(dkv_wide), Matrix<T>(dkv));
  if (q_bias_) biases_backward<T>(a.dev, {q_bias_}, dq), biases_backward<T>(a.dev, {k_bias_, v_bias_}, dkv);
  linear_backward_input<T>(a.dev, dq, q_->template matrix<const T>(), dh, c_.in_multiplier, beta(add));
  add_to_source(a, dkv);
}

template <class T>
void CrossAttention<T>::add_to_source(Pass& a, Tensor2<const T> dkv) const {
  Pass& source = *a.source;
  const Device::Purpose purpose(a.dev, "cross-attention backward: gradient of the encoder output");
  const auto sum = a.encoded.gradient.template as<T>();
  // The gradient of the chunk's rows is this rank's part, like that of the branch that they come from.
  if (reads_chunk()) return linear_backward_input<T>(a.dev, dkv, w_kv(), sum, 1, 1);
  const auto mine = a.scratch<T>("gradient of the encoder output", Index(sum.extent(0)), Index(sum.extent(1)));
  AllRows<T> total(source, "partial sums of the gradient", mine);
  linear_backward_input<T>(a.dev, rows(dkv, 0, source.stream.rows), w_kv(), total.rows());
  const auto before = add_to_neighbours_before(a, dkv);
  if (exchanges(a)) halo(a).backward(before, total.rows());
  total.reduce();
  gyr::add<T>(a.dev, flat(mine), flat(sum));
}

// Adds this layer's part to the gradient of the neighbours before blocks, and returns it. If no later layer reads them, it is
// in scratch memory.
template <class T>
Tensor2<T> CrossAttention<T>::add_to_neighbours_before(Pass& a, Tensor2<const T> dkv) const {
  const Index others = rows_before(a);
  if (others == 0) return {};
  const auto of_own = rows(dkv, a.source->stream.rows, others);
  const bool later = a.encoded_before.gradient.rows > 0;
  const auto sum = later ? a.encoded_before.gradient.template as<T>()
                         : a.scratch<T>("gradient of the neighbours before blocks", others, Index(a.encoded.gradient.columns));
  linear_backward_input<T>(a.dev, of_own, w_kv(), sum, 1, later ? 1 : 0);
  return sum;
}

template <class T>
void CrossAttention<T>::backward_weights(Pass& a, Frame& frame, Tensor2<const T> h, Tensor2<const T> dy) {
  weights_backward<T>(a.dev, {o_}, dy, frame.get(Keys::attended), c_.out_multiplier);
  weights_backward<T>(a.dev, {q_}, frame.get(Keys::dq), h, c_.in_multiplier);
  Scope scope(a.dev.scratch);
  const Tensor2<T> source = reads_chunk() ? a.encoded.values.template as<T>() : frame.get(Keys::source);
  const auto dkv = frame.get(Keys::dkv);
  weights_backward<T>(a.dev, {k_, v_}, rows(dkv, 0, a.source->stream.rows), all_rows(*a.source, source));
  if (const Index others = rows_before(a); others > 0)
    weights_backward<T>(a.dev, {k_, v_}, rows(dkv, a.source->stream.rows, others), frame.get(Keys::before));
}

LayerFlops cross_attention_flops(const ModelConfig& m, const TextLengths& lengths) {
  const double q = double(m.attention.num_heads) * m.attention.head_dim, k = double(m.attention.num_kv_heads) * m.attention.head_dim;
  const double source = double(lengths.source);
  LayerFlops f;
  f.gemms = 4.0 * m.hidden_size * q + 4.0 * encoder_config(m).hidden_size * k * source / double(lengths.text);
  f.attention = 4.0 * source * q;
  return f;
}

template class CrossAttention<double>;
template class CrossAttention<float>;
template class CrossAttention<bf16>;

}  // namespace gyr
