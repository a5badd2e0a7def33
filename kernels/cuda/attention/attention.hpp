// SPDX-License-Identifier: BSD-3-Clause
// What the kernels of attention share.
#pragma once

#include "kernels/cuda/rowwise/dropout.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/attention.hpp"

namespace gyr::backend {

inline constexpr int parts = 8;  // of 32 columns of a head, which a lane has one each of

inline cuda::Grid grid_of_warps(Index tasks) { return {std::min(cuda::ceil_div(tasks, cuda::usual_warps), cuda::most_blocks), cuda::usual_threads}; }

// Which rows of a cache that goes round, or holds all, the one query of a sequence sees that has so many tokens before it: up to its own, those
// written in the round before this, or those of this.
enum class CachedRows { up_to_own, older, newer };
struct VisibleRows {
  Index first, last;
  Index count() const { return last > first ? last - first : 0; }
};
GYR_FUNCTION VisibleRows visible_rows(CachedRows which, Index before, Index held) {
  switch (which) {
    case CachedRows::up_to_own: return {0, before + 1};
    case CachedRows::older: return {before % held, before < held ? 0 : held};
    case CachedRows::newer: return {0, before % held};
  }
  return {0, 0};
}

// A shape and a mask, without what stays on the host.
struct Heads {
  Index batch, queries, keys, num_heads, num_kv_heads, head_dim, v_head_dim;
  VisibleKeys visible;
  cuda::Global<const std::int32_t> positions, ahead;  // of packed documents
  Index first_query, first_key, first_sequence;       // where dropout counts from
  cuda::Global<const std::int32_t> before = {};       // tokens of each sequence before its one query, where keys are a cache's
  CachedRows cached = CachedRows::up_to_own;

  Heads(const AttentionShape& s, const Mask& m)
      : batch(s.batch), queries(s.queries), keys(s.keys), num_heads(s.num_heads), num_kv_heads(s.num_kv_heads), head_dim(s.head_dim),
        v_head_dim(s.v_head_dim), visible(s, m), positions(m.documents.positions), ahead(m.documents.ahead), first_query(m.first_query),
        first_key(m.first_key), first_sequence(m.first_sequence) {
    ensure(s.head_dim <= parts * cuda::warp_size && s.v_head_dim <= parts * cuda::warp_size, "attention heads of {} and {} numbers; {} are the most",
           s.head_dim, s.v_head_dim, parts * cuda::warp_size);
  }
  GYR_FUNCTION Index group() const { return num_heads / num_kv_heads; }
  // Query i of sequence b sees the keys [hidden, seen).
  GYR_DEVICE Index hidden(Index b, Index i) const {
    if (before) return visible_rows(cached, before.load(b), keys).first;
    return masked_out(b, i);
  }
  // Draws of sequence b.
  GYR_DEVICE Draws draws_of(const Draws& of_first, Index b) const { return {of_first.key, of_first.first_sample + first_sequence + b}; }
  // What dropout leaves of the weight that query i of a head gives key j, as a factor.   draws: of its sequence
  template <class A>
  GYR_DEVICE A kept(const Dropout& dropout, const Draws& draws, Index head, Index i, Index j) const {
    if (!dropout.drops()) return A(1);
    const Index key = first_key + j;
    const PhiloxWords words = dropout.words(draws, 0, head, first_query + i, key / 4);
    const bool odd = key % 2 > 0;
    return dropout.factor<A>(key % 4 > 1 ? (odd ? words.at[3] : words.at[2]) : (odd ? words.at[1] : words.at[0]));
  }
  GYR_DEVICE Index seen(Index b, Index i) const {
    if (before) return visible_rows(cached, before.load(b), keys).last;
    return visible_by_mask(b, i);
  }
  // The same where keys are no cache's.
  GYR_DEVICE Index masked_out(Index b, Index i) const {
    return visible.hidden(i, positions ? Index(positions.load(b * queries + i)) : Documents::unlimited);
  }
  GYR_DEVICE Index visible_by_mask(Index b, Index i) const {
    return visible.seen(i, ahead ? Index(ahead.load(b * queries + i)) : Documents::unlimited);
  }
};

// How a product of a query and a key becomes a score.
template <class A>
struct ScoreOf {
  A scale;
  SoftCap<A> cap;
  cuda::DropoutOf dropout;

  // All of it times a factor, as it is in front of an exponential of another base.
  explicit ScoreOf(const ScoreRule& s, double factor = 1) : scale(A(s.scale * factor)), cap(s.cap * factor), dropout(s.dropout) {}
  GYR_DEVICE A operator()(A product) const { return cap.at(scale * product); }
  // The same where it is known at compile time whether there is a cap.
  template <bool caps>
  GYR_DEVICE A of(A product) const {
    if constexpr (caps) return cap.at(scale * product);
    else return scale * product;
  }
  template <bool caps>
  GYR_DEVICE A slope(A score) const {
    if constexpr (caps) return cap.slope(score);
    else return A(1);
  }
};

// The numbers of a bias, or of its gradient, as those of query i and key j of a block.
template <class A>
struct Distances {
  cuda::Global<A> at;  // none where there is no bias
  Index first = 0;

  Distances() = default;
  Distances(const AnyTensor2& x, const DistanceBias& bias, const Mask& mask) : first(bias.first_column(mask)) {
    if (bias) at = cuda::Global<A>(x.as<std::remove_const_t<A>>());
  }
  GYR_DEVICE A of(Index head, Index i, Index j) const { return at ? at.load(head, first + j - i) : A(0); }
};

// The kernel of attention, with what queries have met before or without (fresh).
template <class T>
void attend(Device&, const Heads&, const ScoreRule&, const Distances<const Acc<T>>& bias, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
            bool fresh, AttentionState<Acc<T>> state);

// The same for bf16 by tensor cores, where heads have up to 128 numbers, a multiple of 8, scores no bias, and rows begin where packs do. False
// elsewhere, and nothing is done.
bool attention_by_tensor_cores(Device&, const Heads&, const ScoreRule&, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
                               AttentionState<float> state);

// Of these, where keys are no cache's, scores have no cap and a positive scale, none is dropped, and the GPU multiplies by warpgroups.
void attention_by_warpgroups(Device&, const Heads&, double scale, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
                             AttentionState<float> state);

// Room for the sums that blocks of tensor cores make of dk and dv, each over some of the query heads of a key head; none where there is one part.
struct KeyGradientParts {
  Index count = 1;
  Tensor2<float> dk, dv;  // (count B Tk, K E), (count B Tk, K V)

  KeyGradientParts(Arena& scratch, const Heads&, Index count);
  // As many as make blocks enough for a GPU, by the shape alone: the same bits on any of them.
  static Index enough(const Heads&);
};

bool attention_gradients_by_tensor_cores(Device&, const Heads&, const ScoreRule&, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v,
                                         Tensor2<const bf16> dout, Tensor2<const float> lse, Tensor2<const float> delta, const KeyGradientParts&,
                                         Matrix<float> dq, Matrix<float> dk, Matrix<float> dv);

}  // namespace gyr::backend
