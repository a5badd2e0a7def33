// SPDX-License-Identifier: BSD-3-Clause
// The routing of one row, for every backend: a row is read and written through functions of an expert's or a choice's number. Nothing is kept
// besides: the next choice is the best of those that stand behind the last one.
#pragma once

#include "kernels/base/math.hpp"
#include "kernels/ops/routing.hpp"

namespace gyr {

inline constexpr double least_total = 1e-20;  // added to the sum of the chosen scores

template <class A>
struct Ranked {
  A value;
  Index number;
};
// All values are ordered so, and what is no number stands behind the others.
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

// The experts of a row by what they are chosen by, value(e).
template <class A, class Value>
struct Choice {
  const Routing& rule;
  Index experts;
  const Value& value;

  GYR_FUNCTION Index per_group() const { return experts / rule.groups; }
  // The two largest values together.
  GYR_FUNCTION Ranked<A> group(Index g) const {
    Ranked<A> first = last_rank<A>(experts), second = first;
    for (Index e = g * per_group(); e < (g + 1) * per_group(); ++e) {
      const Ranked<A> x = ranked<A>(value(e), e);
      if (before(x, first)) second = first, first = x;
      else if (before(x, second)) second = x;
    }
    return ranked<A>(per_group() > 1 ? first.value + second.value : first.value, g);
  }
  // The last group that experts may be chosen from.
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
  // The best expert behind `last` in the groups up to `limit`.
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

// put(e, s_e) for every expert, by logit(e); returns the logarithm of softmax's sum.
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

// choose(k, e) for every choice, by value(e).
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

// put(k, w_k), by the score of choice k.
template <class A, class Score, class Put>
GYR_FUNCTION void weigh_row(const Routing& rule, const Score& score, const Put& put) {
  A total = A(least_total);
  for (Index k = 0; k < rule.top_k; ++k) total += score(k);
  for (Index k = 0; k < rule.top_k; ++k) put(k, A(rule.scale) * (rule.normalize ? score(k) / total : score(k)));
}

// put(k, dl) of each choice by its score and weight's gradient; returns what an expert that is not chosen has for each part of its score.
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

// add(e, dl) of a row by its scores and the counts n of its sequence; `along`: 2 z lse.
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
