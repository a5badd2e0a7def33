// SPDX-License-Identifier: BSD-3-Clause
#include "modules/context/balanced_attention.hpp"

#include <algorithm>

#include "kernels/ops/elementwise.hpp"
#include "modules/context/exchange.hpp"

namespace gyr {

template <class T>
BalancedAttention<T>::BalancedAttention(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window)
    : a_(a), s_(a.sequences), shape_(heads), scores_(scores), window_(window), steps_(balanced_schedule(int(s_.ranks), int(s_.rank))) {
  ensure(s_.order == SequenceOrder::contiguous && a.mask.causal,
         "balanced attention needs one contiguous block per rank and a causal mask; here: {} blocks{}", s_.blocks(),
         a.mask.causal ? "" : ", bidirectional");
  shape_.batch = s_.batch, shape_.queries = shape_.keys = s_.seq_length;
  block_ = shape_, block_.batch = 1;
}

template <class T>
AttentionState<Acc<T>> BalancedAttention<T>::state_in(Tensor1<A> run) const {
  const Index heads = shape_.num_heads, o = out_width();
  return {part(run, 0, o), part(run, o, heads), part(run, o + heads, heads)};
}

template <class T>
template <class S>
Tensor1<S> BalancedAttention<T>::scratch_of(const char* name, const Widths& widths, Moved BalancedStep::*moved) const {
  Index most = 0;
  for (const BalancedStep& s : steps_) most = std::max(most, widths.of(s.*moved));
  return most == 0 ? Tensor1<S>() : a_.template scratch<S>(name, s_.rows() * most);
}

template <class T>
template <class S>
std::array<Tensor1<S>, 2> BalancedAttention<T>::scratch_pair(const char* name, const Widths& widths) const {
  const auto first = scratch_of<S>(name, widths, &BalancedStep::received);
  return {first, scratch_of<S>(name, widths, &BalancedStep::received)};
}

template <class T>
template <class S>
Tensor1<S> BalancedAttention<T>::copied(const char* name, Moved what, std::initializer_list<Matrix<const S>> parts) const {
  Index width = 0;
  for (const auto& x : parts) width += x.columns;
  const auto run = scratch_of<S>(name, what == Moved::keys ? Widths{width, 0} : Widths{0, width}, &BalancedStep::sent);
  if (!run.data()) return run;
  Index before = 0;
  for (const auto& x : parts) convert<S, S>(a_.dev, x, Matrix<S>(part(run, before, x.columns))), before += x.columns;
  return run;
}

template <class T>
template <class S>
Event BalancedAttention<T>::there(const BalancedStep& s, const Widths& widths, Tensor1<const S> leaving, Tensor1<S> arriving, Tag tag) const {
  return start_exchange<S>(a_, rows(leaving, 0, s_.rows() * widths.of(s.sent)), s.to, rows(arriving, 0, s_.rows() * widths.of(s.received)), s.from,
                           tag);
}

template <class T>
template <class S>
Event BalancedAttention<T>::back(const BalancedStep& s, const Widths& widths, Tensor1<const S> leaving, Tensor1<S> arriving) const {
  return start_exchange<S>(a_, rows(leaving, 0, s_.rows() * widths.of(s.received)), s.from, rows(arriving, 0, s_.rows() * widths.of(s.sent)), s.to,
                           results);
}

template <class T>
template <class Fetch, class Compute, class GiveBack, class Take>
void BalancedAttention<T>::walk(const Fetch& fetch, const Compute& compute, const GiveBack& give_back, const Take& take) const {
  const Index last = Index(steps_.size()) - 1;
  Event returning;
  for (Index t = 0; t <= last; ++t) {
    Events coming;
    if (t < last) coming = fetch(t + 1);
    compute(t);
    returning.device_wait(a_.dev);
    if (t > 0) take(t - 1);
    returning = give_back(t);
    for (Event& e : coming) e.device_wait(a_.dev);
  }
  returning.device_wait(a_.dev);
  take(last);
}

template <class T>
template <class Compute>
void BalancedAttention<T>::for_each_sequence(const BalancedStep& step, const Compute& compute) const {
  if (step.queries < 0) return;
  const Index length = s_.seq_length, first_query = step.queries * length;
  for (Index b = 0; b < s_.batch; ++b)
    compute(b * length,
            Mask{true, first_query, step.keys * length, s_.full_documents.of_rows(b * s_.ranks * length + first_query, length), window_, b});
}

template <class T>
void BalancedAttention<T>::forward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<T> out, Tensor2<A> lse, const Sinks<A>& sinks) {
  Scope scope(a_.dev.scratch);
  const Widths in{k_width() + v_width(), q_width()}, result{0, out_width() + 2 * shape_.num_heads};
  const AttentionState<A> local = online_softmax_state<T>(a_, out, lse);
  const auto keys = copied<T>("keys and values to send", Moved::keys, {k, v}), queries = copied<T>("queries to send", Moved::queries, {q});
  const auto arriving = scratch_pair<T>("received keys and values, or queries", in);
  const auto leaving = scratch_pair<A>("softmax state of received queries", result);
  const auto returned = scratch_of<A>("returned softmax state of own queries", result, &BalancedStep::sent);

  const auto fetch = [&](Index t) -> Events {
    const BalancedStep& s = steps_[t];
    return {there<T>(s, in, s.sent == Moved::keys ? keys : queries, arriving[t % 2], inputs)};
  };
  const auto compute = [&](Index t) {
    const BalancedStep& s = steps_[t];
    const bool helps = s.received == Moved::queries;
    Matrix<const T> those = q, keys_met = k, values_met = v;
    if (helps) those = part(arriving[t % 2], 0, q_width());
    if (s.received == Moved::keys) keys_met = part(arriving[t % 2], 0, k_width()), values_met = part(arriving[t % 2], k_width(), v_width());
    const AttentionState<A> state = helps ? state_in(leaving[t % 2]) : local;
    for_each_sequence(s, [&](Index first, const Mask& mask) {
      const auto block = [&](const Matrix<const T>& x) { return x.block(first, s_.seq_length, 0, x.columns); };
      attention<T>(a_.dev, block_, mask, scores_, block(those), block(keys_met), block(values_met), t == 0 || helps ? Carry::fresh : Carry::continued,
                   {rows(state.o, first, s_.seq_length), rows(state.m, first, s_.seq_length), rows(state.l, first, s_.seq_length)});
    });
  };
  const auto give_back = [&](Index t) { return back<A>(steps_[t], result, leaving[t % 2], returned); };
  const auto take = [&](Index t) {
    if (steps_[t].sent == Moved::queries) attention_merge<A>(a_.dev, shape_, state_in(returned), local);
  };
  walk(fetch, compute, give_back, take);
  attention_finish<T>(a_.dev, shape_, local, out, lse, sinks.values);
}

template <class T>
void BalancedAttention<T>::backward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<const T> dout, Tensor2<const A> lse,
                                    Tensor2<const A> delta, Matrix<A> dq, Matrix<A> dk, Matrix<A> dv, const Sinks<A>& sinks) {
  sinks_backward<A>(a_, sinks, lse, delta);
  Scope scope(a_.dev.scratch);
  const Index heads = shape_.num_heads;
  const Widths in{k_width() + v_width(), q_width() + out_width()}, sums{0, 2 * heads}, result{k_width() + v_width(), q_width()};
  const auto keys = copied<T>("keys and values to send", Moved::keys, {k, v}),
             queries = copied<T>("queries and output gradients to send", Moved::queries, {q, dout});
  const auto local_sums = copied<A>("lse and delta to send", Moved::queries, {lse, delta});
  const auto arriving = scratch_pair<T>("received keys and values, or queries and output gradients", in);
  const auto sums_arriving = scratch_pair<A>("received lse and delta", sums);
  const auto leaving = scratch_pair<A>("gradients of received inputs", result);
  const auto returned = scratch_of<A>("returned gradients", result, &BalancedStep::sent);

  const auto fetch = [&](Index t) -> Events {
    const BalancedStep& s = steps_[t];
    return {there<T>(s, in, s.sent == Moved::keys ? keys : queries, arriving[t % 2], inputs),
            there<A>(s, sums, local_sums, sums_arriving[t % 2], statistics)};
  };
  const auto compute = [&](Index t) {
    const Moved received = steps_[t].received;
    const auto x = arriving[t % 2];
    const auto y = sums_arriving[t % 2], dx = leaving[t % 2];
    Queries those{q, dout, lse, delta, dq};
    Keys met{k, v, dk, dv};
    if (received == Moved::queries)
      those = {part(x, 0, q_width()), part(x, q_width(), out_width()), part(y, 0, heads), part(y, heads, heads), part(dx, 0, q_width())};
    if (received == Moved::keys) met = {part(x, 0, k_width()), part(x, k_width(), v_width()), part(dx, 0, k_width()), part(dx, k_width(), v_width())};
    if (received != Moved::nothing) fill<A>(a_.dev, rows(dx, 0, s_.rows() * result.of(received)), 0);
    for_each_sequence(steps_[t], [&](Index first, const Mask& mask) {
      const auto block = [&](const auto& matrix) { return matrix.block(first, s_.seq_length, 0, matrix.columns); };
      const auto of_rows = [&](const auto& tensor) { return rows(tensor, first, s_.seq_length); };
      attention_backward<T>(a_.dev, block_, mask, scores_, block(those.q), block(met.k), block(met.v), of_rows(those.dout), of_rows(those.lse),
                            of_rows(those.delta), block(those.dq), block(met.dk), block(met.dv));
    });
  };
  const auto give_back = [&](Index t) { return back<A>(steps_[t], result, leaving[t % 2], returned); };
  const auto take = [&](Index t) {
    const Moved sent = steps_[t].sent;
    const auto join = [&](Tensor2<A> more, Matrix<A> sum) { add<A>(a_.dev, Matrix<const A>(more), sum); };
    if (sent == Moved::keys) join(part(returned, 0, k_width()), dk), join(part(returned, k_width(), v_width()), dv);
    if (sent == Moved::queries) join(part(returned, 0, q_width()), dq);
  };
  walk(fetch, compute, give_back, take);
}

template class BalancedAttention<double>;
template class BalancedAttention<float>;
template class BalancedAttention<bf16>;

}  // namespace gyr
