// SPDX-License-Identifier: BSD-3-Clause
// Routing of one row, for every backend. A row is read and written through functions of an expert's or a choice's
// index. No list of chosen experts is kept: the next choice is the best expert that ranks after the last one.
#pragma once

#include "kernels/base/math.hpp"
#include "kernels/ops/routing.hpp"

namespace gyr {

inline constexpr double least_total = 1e-20;  // added to the sum of the chosen scores, against division by zero

template <class A>
struct Ranked {
  A value;
  Index number;
};
// Total order of experts or groups: larger values first, equal values by index. NaN ranks as -infinity.
template <class A>
GYR_FUNCTION bool before(const Ranked<A>& a, const Ranked<A>& b) {
  return a.value > b.value || (a.value == b.value && a.number < b.number);
}
template <class A>
GYR_FUNCTION Ranked<A> ranked(A value, Index number) {
  return {value == value ? value : A(-__builtin_inff()), number};
}
template <class A>
GYR_FUNCTION Ranked<A> first_rank() {
  return {A(__builtin_inff()), -1};
}
template <class A>
GYR_FUNCTION Ranked<A> last_rank(Index count) {
  return {A(-__builtin_inff()), count};
}

// Experts of a row, ranked by value(e), the score plus bias.
template <class A, class Value>
struct Choice {
  const Routing& rule;
  Index experts;
  const Value& value;

  GYR_FUNCTION Index per_group() const { return experts / rule.groups; }
  // Rank of a group: by the sum of its two largest values.
  GYR_FUNCTION Ranked<A> group(Index g) const {
    Ranked<A> first = last_rank<A>(experts), second = first;
    for (Index e = g * per_group(); e < (g + 1) * per_group(); ++e) {
      const Ranked<A> x = ranked<A>(value(e), e);
      if (before(x, first)) second = first, first = x;
      else if (before(x, second)) second = x;
    }
    return ranked<A>(per_group() > 1 ? first.value + second.value : first.value, g);
  }
  // Lowest-ranked group from which experts may be chosen.
  GYR_FUNCTION Ranked<A> last_group() const {
    Ranked<A> last = first_rank<A>();
    if (rule.groups == 1) return last_rank<A>(1);
    for (Index i = 0; i < rule.top_groups; ++i) {
      Ranked<A> best = last_rank<A>(rule.groups);
      for (Index g = 0; g < rule.groups; ++g)
        if (const Ranked<A> x = group(g); before(last, x) && before(x, best)) best = x;
      last = best;
    }
    return last;
  }
  // Best expert that ranks after `last`, in the groups that do not rank after `limit`.
  GYR_FUNCTION Ranked<A> next(const Ranked<A>& last, const Ranked<A>& limit) const {
    Ranked<A> best = last_rank<A>(experts);
    for (Index g = 0; g < rule.groups; ++g) {
      if (rule.groups > 1 && before(limit, group(g))) continue;
      for (Index e = g * per_group(); e < (g + 1) * per_group(); ++e)
        if (const Ranked<A> x = ranked<A>(value(e), e); before(last, x) && before(x, best)) best = x;
    }
    return best;
  }
};

// Calls put(e, s_e) for every expert with logit(e). Returns the log-sum-exp for softmax, 0 for sigmoid.
template <class A, class Logit, class Put>
GYR_FUNCTION A score_row(const Routing& rule, Index experts, const Logit& logit, const Put& put) {
  if (rule.score == Routing::sigmoid) {
    for (Index e = 0; e < experts; ++e) put(e, sigmoid(logit(e)));
    return A(0);
  }
  A top = logit(0), sum = 0;
  for (Index e = 1; e < experts; ++e) top = logit(e) > top ? logit(e) : top;
  for (Index e = 0; e < experts; ++e) sum += fast_exp(logit(e) - top);
  for (Index e = 0; e < experts; ++e) put(e, fast_exp(logit(e) - top) / sum);
  return top + std::log(sum);
}

// Calls choose(k, e) for each of the top_k choices, ranked by value(e).
template <class A, class Value, class Choose>
GYR_FUNCTION void choose_row(const Routing& rule, Index experts, const Value& value, const Choose& choose) {
  const Choice<A, Value> choice{rule, experts, value};
  const Ranked<A> limit = choice.last_group();
  Ranked<A> last = first_rank<A>();
  for (Index k = 0; k < rule.top_k; ++k) {
    last = choice.next(last, limit);
    choose(k, last.number);
  }
}

// Calls put(k, w_k) for each choice k with score(k).
template <class A, class Score, class Put>
GYR_FUNCTION void weigh_row(const Routing& rule, const Score& score, const Put& put) {
  A total = A(least_total);
  for (Index k = 0; k < rule.top_k; ++k) total += score(k);
  for (Index k = 0; k < rule.top_k; ++k) put(k, A(rule.scale) * (rule.normalize ? score(k) / total : score(k)));
}

// Calls put(k, dl) with the logit gradient of each choice, from its score and its weight's gradient. Returns the factor
// of s_e in the logit gradient of experts that are not chosen.
template <class A, class Score, class Gradient, class Put>
GYR_FUNCTION A route_row_backward(const Routing& rule, const Score& score, const Gradient& dweight, const Put& put) {
  A total = A(least_total), along = 0, all = 0;
  for (Index k = 0; k < rule.top_k; ++k) total += score(k), along += dweight(k) * score(k);
  const auto dscore = [&](Index k) { return A(rule.scale) * (rule.normalize ? (dweight(k) - along / total) / total : dweight(k)); };
  const bool softmax = rule.score == Routing::softmax;
  for (Index k = 0; k < rule.top_k && softmax; ++k) all += dscore(k) * score(k);
  for (Index k = 0; k < rule.top_k; ++k) put(k, score(k) * (softmax ? dscore(k) - all : dscore(k) * (A(1) - score(k))));
  return -all;
}

// Calls add(e, dl) with the gradients of the balance loss and the z-loss of a row, from its scores and the counts n of
// its sequence; `along`: 2 z lse.
template <class A, class Score, class Count, class Put>
GYR_FUNCTION void balance_row(const Routing& rule, Index experts, A balance, A along, const Score& score, const Count& n, const Put& add) {
  const bool softmax = rule.score == Routing::softmax;
  A total = softmax ? A(1) : A(least_total), mean = 0;
  for (Index e = 0; e < experts; ++e) total += softmax ? A(0) : score(e), mean += n(e) * score(e);
  mean /= total;
  for (Index e = 0; e < experts; ++e) {
    const A slope = score(e) / total * (softmax ? A(1) : A(1) - score(e));
    add(e, balance * slope * (n(e) - mean) + along * score(e));
  }
}

}  // namespace gyr
