// SPDX-License-Identifier: BSD-3-Clause
#include "modules/context/head_exchange.hpp"

#include "kernels/ops/elementwise.hpp"

namespace gyr {

void check_head_exchange(Index num_heads, Index num_kv_heads, Index context_ranks) {
  const Index n = context_ranks, k = num_kv_heads;
  require(num_heads % n == 0 && (k % n == 0 || n % k == 0), Exit::config,
          "parallel.context_mode = heads: {} query and {} key heads on a rank cannot be distributed over {} context-parallel ranks; set "
          "parallel.context_mode = "
          "ring or balanced, or a parallel.context that divides the query heads and divides or is a multiple of the key heads",
          num_heads, k, n);
}

template <class T>
HeadExchange<T>::HeadExchange(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window)
    : a_(a), s_(a.sequences), heads_(heads), part_(heads), scores_(scores), window_(window) {
  const Index n = s_.ranks, k = heads.num_kv_heads;
  check_head_exchange(heads.num_heads, k, n);
  part_.num_heads = heads.num_heads / n, part_.num_kv_heads = std::max<Index>(1, k / n);
  scores_.dropout.first_head += s_.rank * part_.num_heads;
  part_.batch = s_.batch, part_.queries = part_.keys = n * s_.seq_length;
  scores_.bias = scores.bias.of_heads(s_.rank * part_.num_heads, part_.num_heads);
}

template <class T>
Mask HeadExchange<T>::mask() const {
  return {a_.mask.causal, 0, 0, s_.full_documents, window_};
}

template <class T>
template <class S, class Copy>
void HeadExchange<T>::for_blocks(Tensor2<S> by_rank, Tensor2<S> in_order, Copy&& copy) const {
  const Index length = s_.block_length();
  for (Index rank = 0; rank < s_.ranks; ++rank)
    for (Index b = 0; b < s_.batch; ++b)
      for (Index i = 0; i < s_.blocks(); ++i)
        copy(rows(by_rank, rank * s_.rows() + b * s_.seq_length + i * length, length),
             rows(in_order, b * s_.ranks * s_.seq_length + s_.block(rank, i) * length, length));
}

template <class T>
template <class S>
Tensor2<S> HeadExchange<T>::to_heads(const char* name, std::initializer_list<Distribution<S>> all) {
  Index width = 0;
  for (const Distribution<S>& distributed : all) width += distributed.width;
  const auto in_order = a_.template scratch<S>(name, all_rows(), width);
  Scope scope(a_.dev.scratch);
  const auto leaving = a_.template scratch<S>("heads to send", all_rows(), width);
  const auto arriving = a_.template scratch<S>("received heads", all_rows(), width);
  for (Index rank = 0; rank < s_.ranks; ++rank) {
    Index at = 0;
    for (const Distribution<S>& distributed : all) {
      const Index first = distributed.of_keys ? first_key_head(rank) * (distributed.width / part_.num_kv_heads) : rank * distributed.width;
      convert<S, S>(a_.dev, columns(distributed.full, first, distributed.width),
                    columns(rows(leaving, rank * s_.rows(), s_.rows()), at, distributed.width));
      at += distributed.width;
    }
  }
  a_.context->start_all_to_all<S>(a_.dev, flat(leaving), flat(arriving)).device_wait(a_.dev);
  for_blocks(arriving, in_order, [&](Tensor2<S> from, Tensor2<S> to) { convert<S, S>(a_.dev, Matrix<const S>(from), Matrix<S>(to)); });
  return in_order;
}

template <class T>
template <class S>
Tensor2<S> HeadExchange<T>::to_tokens(const char* name, Tensor2<S> part) {
  const auto arriving = a_.template scratch<S>(name, all_rows(), Index(part.extent(1)));
  Scope scope(a_.dev.scratch);
  const auto leaving = a_.template scratch<S>("tokens to send", all_rows(), Index(part.extent(1)));
  for_blocks(leaving, part, [&](Tensor2<S> to, Tensor2<S> from) { convert<S, S>(a_.dev, Matrix<const S>(from), Matrix<S>(to)); });
  a_.context->start_all_to_all<S>(a_.dev, flat(leaving), flat(arriving)).device_wait(a_.dev);
  return arriving;
}

template <class T>
void HeadExchange<T>::forward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<T> out, Tensor2<A> lse, const Sinks<A>& sinks) {
  Scope scope(a_.dev.scratch);
  const Index n = all_rows();
  const auto qkv = to_heads<T>("queries, keys and values of all tokens", {{q, q_width()}, {k, k_width(), true}, {v, v_width(), true}});
  const auto attended = a_.template scratch<T>("attention output of all tokens", n, out_width());
  const Tensor2<A> all_lse(lse.data(), n, part_.num_heads);
  const AttentionState<A> state = online_softmax_state<T>(a_, attended, all_lse);
  attention<T>(a_.dev, part_, mask(), scores_, columns(qkv, 0, q_width()), columns(qkv, q_width(), k_width()),
               columns(qkv, q_width() + k_width(), v_width()), Carry::fresh, state);
  attention_finish<T>(a_.dev, part_, state, attended, all_lse, part(sinks).values);
  const auto home = to_tokens<T>("attention output of own tokens", attended);
  for (Index rank = 0; rank < s_.ranks; ++rank)
    convert<T, T>(a_.dev, Matrix<const T>(rows(home, rank * s_.rows(), s_.rows())), columns(out, rank * out_width(), out_width()));
}

template <class T>
void HeadExchange<T>::backward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<const T> dout, Tensor2<const A> lse,
                               Tensor2<const A> delta, Matrix<A> dq, Matrix<A> dk, Matrix<A> dv, const Sinks<A>& sinks) {
  Scope scope(a_.dev.scratch);
  const Index n = all_rows(), width = q_width() + k_width() + v_width();
  const auto all = to_heads<T>("queries, keys, values and gradients of all tokens", {{q, q_width()}, {k, k_width(), true}, {v, v_width(), true}});
  const auto all_dout = to_heads<T>("gradient of attention output, all tokens", {{dout, out_width()}});
  const auto all_delta = to_heads<A>("delta of all tokens", {{delta, part_.num_heads}});
  const auto gradient = a_.template scratch<A>("gradient of queries, keys and values", n, width);
  fill<A>(a_.dev, flat(gradient), 0);
  const auto part = [&](const auto& x, int i) {  // columns of queries (0), keys (1) or values (2)
    return i == 0 ? columns(x, 0, q_width()) : i == 1 ? columns(x, q_width(), k_width()) : columns(x, q_width() + k_width(), v_width());
  };
  attention_backward<T>(a_.dev, part_, mask(), scores_, part(all, 0), part(all, 1), part(all, 2), all_dout,
                        Tensor2<const A>(lse.data(), n, part_.num_heads), all_delta, part(gradient, 0), part(gradient, 1), part(gradient, 2));
  sinks_backward<A>(a_, this->part(sinks), Tensor2<const A>(lse.data(), n, part_.num_heads), all_delta);
  const auto home = to_tokens<A>("gradient of queries, keys and values of own tokens", gradient);
  for (Index rank = 0; rank < s_.ranks; ++rank) {
    const Tensor2<A> from = rows(home, rank * s_.rows(), s_.rows());
    const Index head = first_key_head(rank);
    add<A>(a_.dev, Matrix<const A>(part(from, 0)), columns(dq, rank * q_width(), q_width()));
    add<A>(a_.dev, Matrix<const A>(part(from, 1)), columns(dk, head * part_.head_dim, k_width()));
    add<A>(a_.dev, Matrix<const A>(part(from, 2)), columns(dv, head * part_.v_head_dim, v_width()));
  }
}

template class HeadExchange<double>;
template class HeadExchange<float>;
template class HeadExchange<bf16>;

}  // namespace gyr
