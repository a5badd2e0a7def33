// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of the cross-entropy loss over vocabulary-parallel logits. kernels/ops/cross_entropy.hpp has the formulas.
#include <limits>

#include "kernels/base/instances.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/cross_entropy.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr Index most_threads = 512;  // maximum number of threads per block. One block processes a row, because rows are wide and may be few

template <int N>
Grid grid_of_wide_rows(Index rows, Index columns, int number_bytes) {
  const int warps = int(std::clamp<Index>(ceil_div(columns, Index(N) * warp_size), 1, most_threads / warp_size));
  return {std::min(rows, most_blocks), warps * warp_size, warps * number_bytes};
}

// Calls f(r) for every row of this block.
template <class F>
GYR_DEVICE void each_wide_row(Index rows, const F& f) {
  for (Index r = block_index(); r < rows; r += grid_blocks()) f(r);
}
// Calls f(c) for every pack of a row that belongs to this thread. Column indices fit into int, as token ids do.
template <int N, class F>
GYR_DEVICE void each_wide_column(Index columns, const F& f) {
  for (int c = N * thread_index(); c < int(columns); c += N * block_threads()) f(c);
}
// Calls f(i) for every element of the pack at column c that is before column `end`.
template <int N, class F>
GYR_DEVICE void each_before(int c, int end, const F& f) {
  if (c + N <= end) {
    GYR_UNROLL
    for (int i = 0; i < N; ++i) f(i);
  } else {
    GYR_UNROLL
    for (int i = 0; i < N; ++i)
      if (c + i < end) f(i);
  }
}

template <class A, int N>
GYR_KERNEL logits_top_kernel(Global<const A> logits, LogitColumns columns, Global<A> top) {
  const Shared<A> storage;
  each_wide_row(logits.rows(), [&](Index r) {
    A most = std::numeric_limits<A>::lowest();
    each_wide_column<N>(columns.valid, [&](int c) {
      const auto l = logits.template load_pack<N>(r, c);
      each_before<N>(c, int(columns.valid), [&](int i) { most = l.at[i] > most ? l.at[i] : most; });
    });
    most = block_fold(warp_largest(most), storage, [](A a, A b) { return b > a ? b : a; });
    if (thread_index() == 0) top.store(r, most);
  });
}

template <class A, int N>
GYR_KERNEL logits_found_kernel(Global<const A> logits, LogitColumns columns, Global<const A> top, Global<A> found) {
  const Shared<A> storage;
  each_wide_row(logits.rows(), [&](Index r) {
    const A most = top.load(r);
    A where = std::numeric_limits<A>::lowest();
    each_wide_column<N>(columns.valid, [&](int c) {
      const auto l = logits.template load_pack<N>(r, c);
      each_before<N>(c, int(columns.valid), [&](int i) {
        if (l.at[i] == most && -A(columns.first + c + i) > where) where = -A(columns.first + c + i);
      });
    });
    where = block_fold(warp_largest(where), storage, [](A a, A b) { return b > a ? b : a; });
    if (thread_index() == 0) found.store(r, where);
  });
}

// exp(x) x, and 0 for x = -infinity: a forbidden token adds nothing to the entropy.
template <class A>
GYR_DEVICE A weighted_exp(A x) {
  const A e = fast_exp(x);
  return e > 0 ? e * x : A(0);
}

// Exponentials are summed in A within a pack, and in double over packs.
template <class A, int N>
GYR_KERNEL logits_sums_kernel(Global<const A> logits, LogitColumns columns, Global<const A> top, Global<const Token> labels, Global<A> sums) {
  const Shared<double> storage;
  const bool third = sums.rows() >= 3, fourth = sums.rows() == 4;
  each_wide_row(logits.rows(), [&](Index r) {
    const A most = top.load(r);
    double total = 0, below = 0, weighted = 0;
    each_wide_column<N>(columns.valid, [&](int c) {
      const auto l = logits.template load_pack<N>(r, c);
      A s = 0;
      each_before<N>(c, int(columns.valid), [&](int i) { s += fast_exp(l.at[i] - most); });
      total += double(s);
      if (third) each_before<N>(c, int(columns.valid), [&](int i) { below += double(l.at[i] - most); });
      if (fourth) each_before<N>(c, int(columns.valid), [&](int i) { weighted += double(weighted_exp(l.at[i] - most)); });
    });
    total = block_sum(total, storage);
    if (third) below = block_sum(below, storage);
    if (fourth) weighted = block_sum(weighted, storage);
    if (thread_index() != 0) return;
    const Index label = columns.of(labels.load(r));
    sums.store(0, r, A(total));
    sums.store(1, r, label < 0 ? A(0) : logits.load(r, label) - most);
    if (third) sums.store(2, r, A(below));
    if (fourth) sums.store(3, r, A(weighted));
  });
}

template <class A>
GYR_KERNEL row_entropies_kernel(Global<const A> sums, Global<const Token> labels, Global<double> entropies) {
  const Index r = block_index() * block_threads() + thread_index();
  if (r >= entropies.columns()) return;
  const double total = double(sums.load(0, r)), entropy = std::log(total) - double(sums.load(3, r)) / total;
  entropies.store(r, labels.load(r) == ignored_label ? 0 : entropy);
}

template <class A>
GYR_KERNEL cross_entropy_kernel(Global<const A> sums, Global<const A> top, Global<const Token> labels, LossTerms terms, Global<double> loss) {
  const Index r = block_index() * block_threads() + thread_index();
  if (r >= loss.columns()) return;
  const double log_sum = std::log(double(sums.load(0, r))), lse = log_sum + double(top.load(r));
  double x = log_sum - (1 - terms.smoothing) * double(sums.load(1, r)) + terms.z * lse * lse;
  if (terms.smoothing > 0) x -= terms.smoothing / double(terms.vocab_size) * double(sums.load(2, r));
  if (terms.entropy != 0) x -= terms.entropy * (log_sum - double(sums.load(3, r)) / double(sums.load(0, r)));
  loss.store(r, labels.load(r) == ignored_label ? 0 : x);
}

// Each thread reads the elements that it overwrites, so dlogits may be the logits' memory. given: scale of the loss, or
// empty for 1. of_loss, of_entropy: RowWeights. label_term: amount that is subtracted in the label's column.
template <class T, int N>
GYR_KERNEL cross_entropy_backward_kernel(Global<const Acc<T>> logits, LogitColumns columns, Global<const Acc<T>> top, Global<const Acc<T>> sums,
                                         Global<const Token> labels, Global<const double> given, Global<const double> of_loss,
                                         Global<const double> of_entropy, LossTerms terms, SoftCap<Acc<T>> cap, Global<T> dlogits) {
  using A = Acc<T>;
  const double all = given ? given.load(0) : 1;
  each_wide_row(logits.rows(), [&](Index r) {
    const double scale = of_loss ? all * of_loss.load(r) : all, of_bonus = of_entropy ? all * of_entropy.load(r) : all;
    const A shift = terms.smoothing > 0 ? A(scale * terms.smoothing / double(terms.vocab_size)) : A(0), label_term = A(scale * (1 - terms.smoothing));
    const Token token = labels.load(r);
    const int valid = token == ignored_label ? 0 : int(columns.valid), label = int(columns.of(token));
    const double total = double(sums.load(0, r)), steeper = 1 + 2 * terms.z * (std::log(total) + double(top.load(r)));
    const A most = top.load(r), k = A(scale * steeper / total);
    const A bonus = A(of_bonus * terms.entropy / total), mean = terms.entropy != 0 ? A(double(sums.load(3, r)) / total) : A(0);
    each_wide_column<N>(columns.held, [&](int c) {
      Pack<A, N> v = {};
      if (c < valid) {
        const auto l = logits.template load_pack<N>(r, c);
        each_before<N>(c, valid, [&](int i) {
          const A x = l.at[i] - most, e = fast_exp(x);
          v.at[i] = (bonus != 0 && e > 0 ? k + bonus * (x - mean) : k) * e - shift;
        });
        if (c <= label && label < c + N)
          for (int i = 0; i < N; ++i) v.at[i] -= c + i == label ? label_term : A(0);
        if (cap.cap > 0) each_before<N>(c, valid, [&](int i) { v.at[i] *= cap.slope(l.at[i]); });
      }
      Pack<T, N> d;
      for (int i = 0; i < N; ++i) d.at[i] = T(v.at[i]);
      dlogits.template store_pack<N>(r, c, d);
    });
  });
}

}  // namespace

template <class A>
void logits_top(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<A> top) {
  const LogitColumns columns(logits, valid, 0);
  const Global<const A> in(logits);
  with_packs<A>(
      [&](auto n) {
        launch(dev, "logits_top", grid_of_wide_rows<n>(in.rows(), columns.valid, sizeof(A)), logits_top_kernel<A, n>, in, columns, top);
      },
      in);
}

template <class A>
void logits_sums(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Tensor1<const Token> labels, Index first, Tensor2<A> sums) {
  const LogitColumns columns(logits, valid, first);
  const Global<const A> in(logits);
  with_packs<A>(
      [&](auto n) {
        launch(dev, "logits_sums", grid_of_wide_rows<n>(in.rows(), columns.valid, sizeof(double)), logits_sums_kernel<A, n>, in, columns, top, labels,
               sums);
      },
      in);
}

template <class A>
void logits_argmax(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, Tensor1<A> found) {
  const LogitColumns columns(logits, valid, first);
  const Global<const A> in(logits);
  with_packs<A>(
      [&](auto n) {
        launch(dev, "logits_found", grid_of_wide_rows<n>(in.rows(), columns.valid, sizeof(A)), logits_found_kernel<A, n>, in, columns, top, found);
      },
      in);
}

template <class A>
void row_entropies(Device& dev, Tensor2<const A> sums, Tensor1<const Token> labels, Tensor1<double> entropies) {
  launch(dev, "row_entropies", {ceil_div(entropies.extent(0), usual_threads), usual_threads}, row_entropies_kernel<A>, sums, labels, entropies);
}

template <class A>
void cross_entropy(Device& dev, Tensor2<const A> sums, Tensor1<const A> top, Tensor1<const Token> labels, const LossTerms& terms,
                   Tensor1<double> loss) {
  launch(dev, "cross_entropy", {ceil_div(loss.extent(0), usual_threads), usual_threads}, cross_entropy_kernel<A>, sums, top, labels, terms, loss);
}

template <class T>
void cross_entropy_backward(Device& dev, Tensor2<const Acc<T>> logits, Index valid, Tensor1<const Acc<T>> top, Tensor2<const Acc<T>> sums,
                            Tensor1<const Token> labels, Index first, Tensor1<const double> scale, const LossTerms& terms, Tensor2<T> dlogits,
                            double soft_cap, const RowWeights& weights) {
  using A = Acc<T>;
  const LogitColumns columns(logits, valid, first);
  const Global<const A> in(logits);
  const Global<T> out(dlogits);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "cross_entropy_backward", grid_of_wide_rows<n>(in.rows(), columns.held, 0), cross_entropy_backward_kernel<T, n>, in, columns, top,
               sums, labels, scale, weights.loss, weights.entropy, terms, SoftCap<A>(soft_cap), out);
      },
      in, out);
}

GYR_ALL_LOSS

}  // namespace gyr::backend
