// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of the cross-entropy loss over vocabulary-parallel logits. kernels/ops/cross_entropy.hpp has the formulas.
#include <limits>

#include "kernels/base/instances.hpp"
#include "kernels/base/math.hpp"
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/cross_entropy.hpp"

namespace gyr::backend {

namespace {

constexpr Index piece = 512;  // columns of a row that are summed in A; the sums of these pieces are added in double
constexpr Index lanes = 128;  // columns whose maximum is computed at once

// Maximum of `lanes` adjacent values by halving. The compiler vectorises these comparisons, but not a running maximum.
template <class A>
KOKKOS_INLINE_FUNCTION A greatest(const A* x) {
  A m[lanes / 2];
  for (Index i = 0; i < lanes / 2; ++i) m[i] = x[i] > x[i + lanes / 2] ? x[i] : x[i + lanes / 2];
  for (Index half = lanes / 4; half > 0; half /= 2)
    for (Index i = 0; i < half; ++i) m[i] = m[i] > m[i + half] ? m[i] : m[i + half];
  return m[0];
}

// Maximum of f(0) ... f(n - 1), at least the lowest finite value. NaN is ignored.
template <class A, class F>
KOKKOS_INLINE_FUNCTION A largest(const Team& team, Index n, const F& f) {
  A most = std::numeric_limits<A>::lowest();
  Kokkos::parallel_reduce(
      Kokkos::TeamVectorRange(team, n),
      [=](Index i, A& m) {
        const A x = f(i);
        m = x > m ? x : m;
      },
      Kokkos::Max<A>(most));
  const A lowest = std::numeric_limits<A>::lowest();
  return most > lowest ? most : lowest;
}

// exp(x) x, and 0 for x = -infinity: a forbidden token adds nothing to the entropy.
template <class A>
KOKKOS_INLINE_FUNCTION A weighted_exp(A x) {
  const A e = fast_exp(x);
  return e > 0 ? e * x : A(0);
}

}  // namespace

template <class A>
void logits_top(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<A> top) {
  const Index rows = logits.extent(0);
  const LogitColumns columns(logits, valid, 0);
  for_teams(
      "logits_top", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const A* const l = logits.data() + r * columns.held;
        const Index groups = columns.valid / lanes, rest = groups * lanes;
        const A most = largest<A>(team, groups, [=](Index i) { return greatest(l + i * lanes); });
        const A last = largest<A>(team, columns.valid - rest, [=](Index i) { return l[rest + i]; });
        once(team, [&] { top.data()[r] = most > last ? most : last; });
      });
}

template <class A>
void logits_sums(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Tensor1<const Token> labels, Index first, Tensor2<A> sums) {
  const Index rows = logits.extent(0);
  const LogitColumns columns(logits, valid, first);
  const bool third = sums.extent(0) >= 3, fourth = sums.extent(0) == 4;
  for_teams(
      "logits_sums", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const A* const l = logits.data() + r * columns.held;
        const A most = top.data()[r];
        const double total = sum<double>(team, ceil_div(columns.valid, piece), [=](Index p, double& t) {
          A s = 0;
          for (Index v = p * piece; v < least((p + 1) * piece, columns.valid); ++v) s += fast_exp(l[v] - most);
          t += s;
        });
        double below = 0, weighted = 0;
        if (third) below = sum<double>(team, columns.valid, [=](Index v, double& t) { t += double(l[v] - most); });
        if (fourth) weighted = sum<double>(team, columns.valid, [=](Index v, double& t) { t += double(weighted_exp(l[v] - most)); });
        once(team, [&] {
          const Index label = columns.of(labels.data()[r]);
          if (third) sums.data()[2 * rows + r] = A(below);
          if (fourth) sums.data()[3 * rows + r] = A(weighted);
          sums.data()[r] = A(total);
          sums.data()[rows + r] = label < 0 ? A(0) : l[label] - most;
        });
      });
}

template <class A>
void logits_argmax(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, Tensor1<A> found) {
  const LogitColumns columns(logits, valid, first);
  for_teams(
      "logits_found", dev, logits.extent(0), KOKKOS_LAMBDA(const Team& team, Index r) {
        const A* const l = logits.data() + r * columns.held;
        const A most = top.data()[r];
        const A where =
            largest<A>(team, columns.valid, [=](Index v) { return l[v] == most ? -A(columns.first + v) : std::numeric_limits<A>::lowest(); });
        once(team, [&] { found.data()[r] = where; });
      });
}

template <class A>
void row_entropies(Device& dev, Tensor2<const A> sums, Tensor1<const Token> labels, Tensor1<double> entropies) {
  const Index rows = entropies.extent(0);
  for_flat(
      "row_entropies", dev, rows, KOKKOS_LAMBDA(Index r) {
        const double total = double(sums.data()[r]), entropy = std::log(total) - double(sums.data()[3 * rows + r]) / total;
        entropies.data()[r] = labels.data()[r] == ignored_label ? 0 : entropy;
      });
}

template <class A>
void cross_entropy(Device& dev, Tensor2<const A> sums, Tensor1<const A> top, Tensor1<const Token> labels, const LossTerms& terms,
                   Tensor1<double> loss) {
  const Index rows = loss.extent(0);
  for_flat(
      "cross_entropy", dev, rows, KOKKOS_LAMBDA(Index r) {
        const double log_sum = std::log(double(sums.data()[r])), lse = log_sum + double(top.data()[r]);
        double x = log_sum - (1 - terms.smoothing) * double(sums.data()[rows + r]) + terms.z * lse * lse;
        if (terms.smoothing > 0) x -= terms.smoothing / double(terms.vocab_size) * double(sums.data()[2 * rows + r]);
        if (terms.entropy != 0) x -= terms.entropy * (log_sum - double(sums.data()[3 * rows + r]) / double(sums.data()[r]));
        loss.data()[r] = labels.data()[r] == ignored_label ? 0 : x;
      });
}

template <class T>
void cross_entropy_backward(Device& dev, Tensor2<const Acc<T>> logits, Index valid, Tensor1<const Acc<T>> top, Tensor2<const Acc<T>> sums,
                            Tensor1<const Token> labels, Index first, Tensor1<const double> scale, const LossTerms& terms, Tensor2<T> dlogits,
                            double soft_cap, const RowWeights& weights) {
  using A = Acc<T>;
  const Index rows = logits.extent(0);
  const LogitColumns columns(logits, valid, first);
  const SoftCap<A> cap(soft_cap);
  const double *const given = scale.data(), *const of_loss = weights.loss.data(), *const of_entropy = weights.entropy.data();
  for_teams(
      "cross_entropy_backward", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const A* const l = logits.data() + r * columns.held;
        T* const d = dlogits.data() + r * columns.held;
        const Token token = labels.data()[r];
        const Index valid = token == ignored_label ? 0 : columns.valid, label = columns.of(token);
        const double all = given ? *given : 1, scale = of_loss ? all * of_loss[r] : all, of_bonus = of_entropy ? all * of_entropy[r] : all;
        const A shift = terms.smoothing > 0 ? A(scale * terms.smoothing / double(terms.vocab_size)) : A(0);
        const double total = double(sums.data()[r]), steeper = 1 + 2 * terms.z * (std::log(total) + double(top.data()[r]));
        const A most = top.data()[r], k = A(scale * steeper / total);
        const A bonus = A(of_bonus * terms.entropy / total), mean = terms.entropy != 0 ? A(double(sums.data()[3 * rows + r]) / total) : A(0);
        const A target = label < 0 ? A(0) : l[label];  // read before the row may be overwritten in place
        team.team_barrier();
        const auto write = [&](const auto& gradient) {
          bool in_place = false;
          if constexpr (std::is_same_v<T, A>) {
            in_place = l == d;  // then a single pointer is used: compilers do not vectorise loops over two pointers that may overlap
            if (in_place) each(team, valid, [=](Index v) { d[v] = gradient(d[v]) * cap.slope(d[v]); });
          }
          if (!in_place) each(team, valid, [=](Index v) { d[v] = T(gradient(l[v]) * cap.slope(l[v])); });
        };
        const auto plain = [=](A logit) { return k * fast_exp(logit - most) - shift; };
        const auto with_bonus = [=](A logit) { return plain(logit) + bonus * (weighted_exp(logit - most) - mean * fast_exp(logit - most)); };
        bonus != 0 ? write(with_bonus) : write(plain);
        each(team, columns.held - valid, [=](Index v) { d[valid + v] = T(A(0)); });
        team.team_barrier();
        const A label_term = A(scale * (1 - terms.smoothing));
        if (label >= 0) once(team, [&] { d[label] = T(A((bonus != 0 ? with_bonus(target) : plain(target)) - label_term) * cap.slope(target)); });
      });
}

GYR_ALL_LOSS

}  // namespace gyr::backend
