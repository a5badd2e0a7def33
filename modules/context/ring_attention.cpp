// SPDX-License-Identifier: BSD-3-Clause
#include "modules/context/ring_attention.hpp"

#include "kernels/ops/elementwise.hpp"

namespace gyr {

template <class T>
RingAttention<T>::RingAttention(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window)
    : a_(a), s_(a.sequences), heads_(heads), scores_(scores), window_(window) {}

template <class T>
AttentionShape RingAttention<T>::shape(Index batch, Index tokens) const {
  AttentionShape shape = heads_;
  shape.batch = batch, shape.queries = shape.keys = tokens;
  return shape;
}

template <class T>
Mask RingAttention<T>::mask(Index block, Index of_keys, Index sequence) const {
  return {a_.mask.causal, block * s_.block_length(), of_keys * s_.block_length(), {}, window_, sequence};
}

template <class T>
Index RingAttention<T>::steps() const {
  const AttentionShape one = shape(1, s_.block_length());
  const auto is_visible = [&](Index rank, Index owner) {
    for (Index i = 0; i < s_.blocks(); ++i)
      for (Index j = 0; j < s_.blocks(); ++j)
        if (any_visible(one, mask(s_.block(rank, i), s_.block(owner, j)))) return true;
    return false;
  };
  for (Index step = s_.ranks - 1; step > 0; --step)
    for (Index rank = s_.ranks; rank-- > 0;)
      if (is_visible(rank, owner_on(rank, step))) return step + 1;
  return 1;
}

// Copies keys and values next to each other into scratch.
template <class T>
Tensor2<T> RingAttention<T>::packed(Matrix<const T> k, Matrix<const T> v) {
  const auto kv = a_.template scratch<T>("keys and values", k.rows, k_width() + v_width());
  convert<T, T>(a_.dev, k, keys(kv));
  convert<T, T>(a_.dev, v, values(kv));
  return kv;
}

template <class T>
Event RingAttention<T>::pass_on(Tensor2<const T> mine, Tensor2<T> next) {
  const int ranks = int(s_.ranks), rank = int(s_.rank);
  return a_.context->start_shift<T>(a_.dev, flat(mine), (rank + 1) % ranks, flat(next), (rank - 1 + ranks) % ranks);
}

template <class T>
template <class Visit>
void RingAttention<T>::for_blocks(int owner, Visit&& visit) const {
  const Index blocks = s_.blocks(), length = s_.block_length();
  for (Index b = 0; b < s_.batch; ++b)
    for (Index i = 0; i < blocks; ++i)
      for (Index j = 0; j < blocks; ++j) {
        Mask mask = this->mask(s_.block(s_.rank, i), s_.block(owner, j), b);
        if (!any_visible(shape(1, length), mask)) continue;
        const Index block = b * blocks + i, first = block * length;
        mask.documents = s_.documents.of_rows(first, length);
        visit(block, first, (b * blocks + j) * length, mask);
      }
}

template <class T>
void RingAttention<T>::forward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<T> out, Tensor2<A> lse, const Sinks<A>& sinks) {
  Scope scope(a_.dev.scratch);
  const AttentionState<A> state = online_softmax_state<T>(a_, out, lse);
  const Index length = s_.block_length();
  Tensor2<T> kv = packed(k, v), next = a_.template scratch<T>("next keys and values", k.rows, k_width() + v_width());
  std::vector<bool> begun(std::size_t(s_.batch * s_.blocks()), false);
  const Index steps = this->steps();
  for (Index step = 0; step < steps; ++step) {
    Event coming;
    if (step + 1 < steps) coming = pass_on(kv, next);
    for_blocks(owner(step), [&](Index block, Index first, Index first_key, const Mask& mask) {
      const Carry carry = begun[block] ? Carry::continued : Carry::fresh;
      begun[block] = true;
      attention<T>(a_.dev, shape(1, length), mask, scores_, q.block(first, length, 0, q.columns), keys(kv).block(first_key, length, 0, k_width()),
                   values(kv).block(first_key, length, 0, v_width()), carry,
                   {rows(state.o, first, length), rows(state.m, first, length), rows(state.l, first, length)});
    });
    coming.device_wait(a_.dev);
    std::swap(kv, next);
  }
  attention_finish<T>(a_.dev, shape(s_.batch, s_.seq_length), state, out, lse, sinks.values);
}

template <class T>
void RingAttention<T>::backward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<const T> dout, Tensor2<const A> lse,
                                Tensor2<const A> delta, Matrix<A> dq, Matrix<A> dk, Matrix<A> dv, const Sinks<A>& sinks) {
  sinks_backward<A>(a_, sinks, lse, delta);
  Scope scope(a_.dev.scratch);
  const Index length = s_.block_length(), width = k_width() + v_width();
  const int ranks = int(s_.ranks), rank = int(s_.rank);
  const Index steps = this->steps();
  const auto scratch_of = [&](const char* name) { return a_.template scratch<A>(name, k.rows, width); };
  Tensor2<T> kv = packed(k, v), next = a_.template scratch<T>("next keys and values", k.rows, width);
  Tensor2<A> here = scratch_of("K/V gradient"), leaving = scratch_of("K/V gradient, sent"), arriving = scratch_of("K/V gradient, received");
  Event in_flight;  // event of the K/V gradient transfer of the previous ring step
  for (Index step = 0; step < steps; ++step) {
    Event coming;
    if (step + 1 < steps) coming = pass_on(kv, next);
    fill<A>(a_.dev, flat(here), 0);
    for_blocks(owner(step), [&](Index, Index first, Index first_key, const Mask& mask) {
      attention_backward<T>(a_.dev, shape(1, length), mask, scores_, q.block(first, length, 0, q.columns),
                            keys(kv).block(first_key, length, 0, k_width()), values(kv).block(first_key, length, 0, v_width()),
                            rows(dout, first, length), rows(lse, first, length), rows(delta, first, length), dq.block(first, length, 0, dq.columns),
                            keys(here).block(first_key, length, 0, k_width()), values(here).block(first_key, length, 0, v_width()));
    });
    in_flight.device_wait(a_.dev);
    if (step > 0) add<A>(a_.dev, flat(arriving), flat(here));
    std::swap(here, leaving);
    if (steps == 1) break;
    const int hops = step + 1 < steps ? 1 : int(ranks - step);  // the last step sends the gradients directly to their owner
    in_flight = a_.context->start_shift<A>(a_.dev, flat(leaving), (rank + hops) % ranks, flat(arriving), (rank - hops + ranks) % ranks);
    coming.device_wait(a_.dev);
    std::swap(kv, next);
  }
  in_flight.device_wait(a_.dev);
  const Tensor2<A> sum = steps == 1 ? leaving : arriving;
  convert<A, A>(a_.dev, keys(sum), dk);
  convert<A, A>(a_.dev, values(sum), dv);
}

template class RingAttention<double>;
template class RingAttention<float>;
template class RingAttention<bf16>;

}  // namespace gyr
