// SPDX-License-Identifier: BSD-3-Clause
// Types and functions shared by the attention kernels.
#pragma once

#include "kernels/cuda/rowwise/dropout.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/attention.hpp"

namespace gyr::backend {

// Maximum number of 32-column parts of a head, of which each lane holds one column: in general, and for values in the forward.
inline constexpr int parts = 8, wide_parts = 16;

inline void ensure_widths(Index keys, Index values, int most_parts) {
  ensure(keys <= most_parts * cuda::warp_size && values <= most_parts * cuda::warp_size,
         "attention head widths are {} (queries, keys) and {} (values); the maximum is {}", keys, values, most_parts * cuda::warp_size);
}

inline cuda::Grid grid_of_warps(Index tasks) { return {std::min(cuda::ceil_div(tasks, cuda::usual_warps), cuda::most_blocks), cuda::usual_threads}; }

// Rows of a KV cache that the single new query of a sequence sees, which has `before` earlier tokens. up_to_query: the
// cache holds all tokens, and the rows up to the query's own are visible. older, newer: the cache is a ring buffer of
// `held` rows; older rows were written in the previous round, newer rows in the current one.
enum class CachedRows { up_to_query, older, newer };
struct VisibleRows {
  Index first, last;
  Index count() const { return last > first ? last - first : 0; }
};
GYR_FUNCTION VisibleRows visible_rows(CachedRows which, Index before, Index held) {
  switch (which) {
    case CachedRows::up_to_query: return {0, before + 1};
    case CachedRows::older: return {before % held, before < held ? 0 : held};
    case CachedRows::newer: return {0, before % held};
  }
  return {0, 0};
}

// AttentionShape and Mask as a kernel argument, without host-only fields.
struct Heads {
  Index batch, queries, keys, num_heads, num_kv_heads, head_dim, v_head_dim;
  VisibleKeys visible;
  cuda::Global<const std::int32_t> positions, ahead;  // for packed documents, tokens of the document before and after each query; otherwise null
  Index first_query, first_key, first_sequence;       // offsets of this call's first query, key and sequence in the dropout counter
  // number of tokens of each sequence before its one query, if the keys are in a KV cache; otherwise null
  cuda::Global<const std::int32_t> before = {};
  CachedRows cached = CachedRows::up_to_query;

  Heads(const AttentionShape& s, const Mask& m)
      : batch(s.batch), queries(s.queries), keys(s.keys), num_heads(s.num_heads), num_kv_heads(s.num_kv_heads), head_dim(s.head_dim),
        v_head_dim(s.v_head_dim), visible(s, m), positions(m.documents.positions), ahead(m.documents.ahead), first_query(m.first_query),
        first_key(m.first_key), first_sequence(m.first_sequence) {
    ensure_widths(0, s.v_head_dim, wide_parts);
  }
  GYR_FUNCTION Index group() const { return num_heads / num_kv_heads; }
  // Query i of sequence b sees the keys [hidden, seen).
  GYR_DEVICE Index hidden(Index b, Index i) const {
    if (before) return visible_rows(cached, before.load(b), keys).first;
    return masked_out(b, i);
  }
  // Random-number state of dropout for sequence b.
  GYR_DEVICE Draws draws_of(const Dropout& dropout, const Draws& of_first, Index b) const { return dropout.of(of_first, first_sequence + b); }
  // Dropout factor of the attention weight between query i and key j of a head: 0, or 1 / (1 - p). draws: state of the
  // query's sequence.
  template <class A>
  GYR_DEVICE A kept(const Dropout& dropout, const Draws& draws, Index head, Index i, Index j) const {
    if (!dropout.drops()) return A(1);
    const Index key = first_key + j;
    const PhiloxWords words = dropout.words(draws, head, first_query + i, key / 4);
    const bool odd = key % 2 > 0;
    return dropout.factor<A>(key % 4 > 1 ? (odd ? words.at[3] : words.at[2]) : (odd ? words.at[1] : words.at[0]));
  }
  GYR_DEVICE Index seen(Index b, Index i) const {
    if (before) return visible_rows(cached, before.load(b), keys).last;
    return visible_by_mask(b, i);
  }
  // Visible key range by the mask only, for keys that are not in a KV cache.
  GYR_DEVICE Index masked_out(Index b, Index i) const {
    return visible.hidden(i, positions ? Index(positions.load(b * queries + i)) : Documents::unlimited);
  }
  GYR_DEVICE Index visible_by_mask(Index b, Index i) const {
    return visible.seen(i, ahead ? Index(ahead.load(b * queries + i)) : Documents::unlimited);
  }
};

// Maps the dot product of a query and a key to a score: scale, then soft cap.
template <class A>
struct ScoreOf {
  A scale;
  SoftCap<A> cap;
  cuda::DropoutOf dropout;

  // factor: multiplies scale and cap, for example log2 e if exponentials have base 2.
  explicit ScoreOf(const ScoreRule& s, double factor = 1) : scale(A(s.scale * factor)), cap(s.cap * factor), dropout(s.dropout) {}
  GYR_DEVICE A operator()(A product) const { return cap.at(scale * product); }
  // Same as operator(), with the presence of a cap known at compile time.
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

// Values of a distance bias, or of its gradient, indexed by head, query i and key j of a block.
template <class A>
struct Distances {
  cuda::Global<A> at;  // null if there is no bias
  Index first = 0;

  Distances() = default;
  Distances(const AnyTensor2& x, const DistanceBias& bias, const Mask& mask) : first(bias.first_column(mask)) {
    if (bias) at = cuda::Global<A>(x.as<std::remove_const_t<A>>());
  }
  GYR_DEVICE A of(Index head, Index i, Index j) const { return at ? at.load(head, first + j - i) : A(0); }
};

// Launches the attention kernel. fresh: `state` is only written; otherwise the online softmax continues from `state`,
// which holds the result for earlier blocks of keys.
template <class T>
void attend(Device&, const Heads&, const ScoreRule&, const Distances<const Acc<T>>& bias, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
            bool fresh, AttentionState<Acc<T>> state);

// Same as attend(), for bf16 on tensor cores; the scores must not have a bias. Returns false and does nothing unless
// head widths are multiples of 8 up to 128, rows of q, k and v are 16-byte aligned, rows of the output are 8-byte
// aligned, and a sequence has fewer than 2^30 tokens.
bool attention_by_tensor_cores(Device&, const Heads&, const ScoreRule&, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
                               AttentionState<float> state);

// Hopper version (wgmma) of attention_by_tensor_cores. In addition it requires keys that are not in a KV cache, no cap,
// a positive scale, no dropout, and uses_wgmma().
void attention_by_warpgroups(Device&, const Heads&, double scale, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
                             AttentionState<float> state);

// Scratch memory for partial sums of dK and dV. Each part covers some of the query heads of a key head (split over
// blocks). It is empty if there is one part.
struct KeyGradientParts {
  Index count = 1;
  Tensor2<float> dk, dv;  // partial sums, shapes (count B Tk, K E) and (count B Tk, K V)

  KeyGradientParts(Arena& scratch, const Heads&, Index count);
  // Number of parts that yields enough blocks to fill a GPU. It depends on the shape only, so that all GPUs compute the
  // same bits.
  static Index enough(const Heads&);
};

bool attention_gradients_by_tensor_cores(Device&, const Heads&, const ScoreRule&, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v,
                                         Tensor2<const bf16> dout, Tensor2<const float> lse, Tensor2<const float> delta, const KeyGradientParts&,
                                         Matrix<float> dq, Matrix<float> dk, Matrix<float> dv);

}  // namespace gyr::backend
