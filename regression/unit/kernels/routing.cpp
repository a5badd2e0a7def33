// SPDX-License-Identifier: BSD-3-Clause
// Expert routing is compared with plain loops in double, for random routing rules. Some cases have many equal scores.
// In some cases a large bias excludes two thirds of the experts.
#include "kernels/ops/routing.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "kernels/ops/balance_loss.hpp"
#include "kernels/ops/expert_rows.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::routing_suite {

namespace {

// Distribution of the logits and biases of a case.
enum class Kind { continuous, few_values, all_to_some };

struct Case {
  Routing rule;
  Index rows, experts;
  Kind kind;
  bool biased;

  Case(std::mt19937& random, Kind kind) : kind(kind) {
    const auto from = [&](Index least, Index most) { return std::uniform_int_distribution<Index>(least, most)(random); };
    rule.groups = from(1, 4), rule.top_groups = from(1, rule.groups);
    experts = rule.groups * from(1, 6), rows = from(1, 70);
    rule.top_k = from(1, experts / rule.groups * rule.top_groups);
    rule.score = from(0, 1) ? Routing::softmax : Routing::sigmoid;
    rule.normalize = from(0, 1), rule.scale = from(0, 1) ? 1 : 2.5;
    biased = kind == Kind::all_to_some || from(0, 1);
  }
};

template <class A>
struct Tables {
  Tensor2<A> scores, weights, logits;
  Tensor2<std::int32_t> chosen;
  Tensor1<A> bias, lse;

  Tables(Workbench& bench, const Case& c)
      : scores(bench.zeros<A>(c.rows, c.experts)), weights(bench.zeros<A>(c.rows, c.rule.top_k)), logits(bench.normal<A>(c.rows, c.experts)),
        chosen(bench.arena.tensor<std::int32_t>(c.rows, c.rule.top_k)), lse(bench.zeros<A>(c.rows)) {
    if (c.kind == Kind::few_values)
      for (Index i = 0; i < c.rows * c.experts; ++i) logits.data()[i] = A(std::floor(double(logits.data()[i])));
    if (c.biased) bias = bench.normal<A>(c.experts);
    for (Index e = 0; e < c.experts && c.biased; ++e) {
      if (c.kind == Kind::few_values) bias(e) = A(0.5 * std::round(double(bias(e))));
      if (c.kind == Kind::all_to_some) bias(e) = A(e % 3 == 1 ? 100 : -100);
    }
  }
  void run(Workbench& bench, const Case& c) {
    std::copy_n(logits.data(), logits.span(), scores.data());
    route<A>(bench.dev, c.rule, bias, scores, chosen, weights, lse);
  }
};

// Reference choice: the experts of the best groups, sorted by value in descending order. A stable sort keeps equal
// values in expert order.
template <class A>
std::vector<Index> chosen_of(const Case& c, const std::vector<A>& value) {
  const auto by = [](const std::vector<A>& v) { return [&v](Index a, Index b) { return v[a] > v[b]; }; };
  const Index width = c.experts / c.rule.groups;
  std::vector<A> best(c.rule.groups);
  for (Index g = 0; g < c.rule.groups; ++g) {
    std::vector<A> of(value.begin() + g * width, value.begin() + (g + 1) * width);
    std::sort(of.begin(), of.end(), std::greater<A>());
    best[g] = of[0] + (width > 1 ? of[1] : A(0));
  }
  std::vector<Index> groups(c.rule.groups), experts;
  std::iota(groups.begin(), groups.end(), 0);
  std::stable_sort(groups.begin(), groups.end(), by(best));
  groups.resize(c.rule.top_groups);
  for (Index e = 0; e < c.experts; ++e)
    if (std::find(groups.begin(), groups.end(), e / width) != groups.end()) experts.push_back(e);
  std::stable_sort(experts.begin(), experts.end(), by(value));
  experts.resize(c.rule.top_k);
  return experts;
}

// Scores and weights must agree with plain loops. The chosen experts must be those of a stable sort of the kernel's own
// scores.
template <class A>
void expect_plain(const Case& c) {
  Workbench bench;
  Tables<A> t(bench, c);
  t.run(bench, c);
  std::vector<double> scores, weights, lse;
  for (Index r = 0; r < c.rows; ++r) {
    double sum = 0;
    for (Index e = 0; e < c.experts; ++e) sum += std::exp(double(t.logits(r, e)));
    lse.push_back(c.rule.score == Routing::softmax ? std::log(sum) : 0);
    std::vector<A> value;
    for (Index e = 0; e < c.experts; ++e) {
      const double l = double(t.logits(r, e));
      scores.push_back(c.rule.score == Routing::softmax ? std::exp(l) / sum : 1 / (1 + std::exp(-l)));
      value.push_back(c.biased ? t.scores(r, e) + t.bias(e) : t.scores(r, e));
    }
    const auto chosen = chosen_of<A>(c, value);
    double total = 0;
    for (Index k = 0; k < c.rule.top_k; ++k) {
      EXPECT_EQ(t.chosen(r, k), chosen[k]) << "row " << r << " choice " << k;
      total += scores[r * c.experts + chosen[k]];
    }
    for (const Index e : chosen) weights.push_back(c.rule.scale * scores[r * c.experts + e] / (c.rule.normalize ? total : 1));
  }
  EXPECT_LE(difference(values_of(t.scores), scores), tolerance<A>);
  EXPECT_LE(difference(values_of(t.weights), weights), tolerance<A>);
  EXPECT_LE(difference(values_of(t.lse), lse), tolerance<A>);
}

ExpertRows grouped(Workbench& bench, const Case& c, const Tensor2<std::int32_t>& chosen) {
  ExpertRows rows{bench.arena.tensor<std::int32_t>(c.rows, c.rule.top_k), bench.arena.tensor<std::int32_t>(c.rows * c.rule.top_k),
                  bench.arena.tensor<std::int32_t>(c.experts)};
  group_rows(bench.dev, chosen, rows);
  return rows;
}

// The grouped rows must be the permutation of a stable sort by expert: every slot once, in order within each expert.
void expect_sorted(Workbench& bench, const Case& c, const Tensor2<std::int32_t>& chosen) {
  const ExpertRows rows = grouped(bench, c, chosen);
  std::vector<std::int32_t> slots(c.rows * c.rule.top_k), count(c.experts, 0);
  std::iota(slots.begin(), slots.end(), 0);
  std::stable_sort(slots.begin(), slots.end(), [&](int a, int b) { return chosen.data()[a] < chosen.data()[b]; });
  for (std::size_t p = 0; p < slots.size(); ++p) {
    EXPECT_EQ(rows.slot(p), slots[p]);
    EXPECT_EQ(rows.place.data()[slots[p]], Index(p));
    ++count[chosen.data()[p]];
  }
  for (Index e = 0; e < c.experts; ++e) EXPECT_EQ(rows.count(e), count[e]);
}

// Calls f with 25 random cases of every kind.
template <class F>
void on_cases(const F& f) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (int i = 0; i < 25; ++i)
    for (const Kind kind : {Kind::continuous, Kind::few_values, Kind::all_to_some}) {
      SCOPED_TRACE(fmt::format("case {} of kind {}", i, int(kind)));
      f(Case(random, kind));
    }
}

}  // namespace

TEST(routing, routing_agrees_with_plain_loops_and_sort) {
  on_cases([](const Case& c) {
    expect_plain<double>(c);
    expect_plain<float>(c);
  });
}

TEST(routing, gradients_match_finite_differences) {
  on_cases([](Case c) {
    c.rows = std::min<Index>(c.rows, 3);
    Workbench bench;
    Tables<double> t(bench, c);
    const auto dweights = bench.normal<double>(c.rows, c.rule.top_k), dlogits = bench.normal<double>(c.rows, c.experts);
    t.run(bench, c);
    route_backward<double>(bench.dev, c.rule, t.scores, t.chosen, dweights, dlogits);
    const auto loss = [&] {  // loss for a fixed choice of experts
      double all = 0;
      for (Index r = 0; r < c.rows; ++r) {
        double exps = 0, total = 0, along = 0;
        for (Index e = 0; e < c.experts; ++e) exps += std::exp(t.logits(r, e));
        for (Index k = 0; k < c.rule.top_k; ++k) {
          const double x = std::exp(t.logits(r, t.chosen(r, k))), s = c.rule.score == Routing::softmax ? x / exps : x / (1 + x);
          total += s, along += s * dweights(r, k);
        }
        all += c.rule.scale * along / (c.rule.normalize ? total : 1);
      }
      return all;
    };
    const auto slopes = slope(flat(t.logits), loss);
    for (std::size_t i = 0; i < slopes.size(); ++i) EXPECT_NEAR(dlogits.data()[i], slopes[i], 1e-9);
  });
}

// A row with NaN logits still gets top_k distinct, valid experts.
TEST(routing, nan_logits_still_choose_distinct_experts) {
  on_cases([](Case c) {
    Workbench bench;
    Tables<float> t(bench, c);
    for (Index e = 0; e < c.experts; ++e) t.logits(0, e) = NAN;
    t.logits(c.rows - 1, c.experts - 1) = NAN;
    t.run(bench, c);
    for (Index r = 0; r < c.rows; ++r) {
      std::vector<std::int32_t> of(&t.chosen(r, 0), &t.chosen(r, 0) + c.rule.top_k);
      std::sort(of.begin(), of.end());
      EXPECT_TRUE(of.front() >= 0 && of.back() < c.experts && std::adjacent_find(of.begin(), of.end()) == of.end());
    }
  });
}

TEST(routing, no_row_is_lost_or_duplicated) {
  on_cases([](const Case& c) {
    Workbench bench;
    Tables<float> t(bench, c);
    t.run(bench, c);
    expect_sorted(bench, c, t.chosen);
    for (const std::int32_t expert : {0, int(c.experts) - 1, int(c.experts) / 2}) {
      std::fill_n(t.chosen.data(), t.chosen.span(), expert);
      expect_sorted(bench, c, t.chosen);
    }
  });
}

// gather_rows copies each row once for each of its chosen experts. combine_rows sums these copies, so it is the
// transpose of gather_rows.
template <class T>
void expect_gather_and_combine(const Case& c, Index width) {
  Workbench bench;
  Tables<Acc<T>> t(bench, c);
  t.run(bench, c);
  const ExpertRows rows = grouped(bench, c, t.chosen);
  const auto x = bench.normal<T>(c.rows, width), y = bench.normal<T>(c.rows, width);
  const auto z = bench.normal<T>(c.rows * c.rule.top_k, width), gathered = bench.normal<T>(c.rows * c.rule.top_k, width);
  gather_rows<T>(bench.dev, rows, x, gathered);
  std::vector<double> want, sums = values_of(y);
  for (Index p = 0; p < c.rows * c.rule.top_k; ++p)
    for (Index d = 0; d < width; ++d) want.push_back(double(x(rows.slot(p) / c.rule.top_k, d)));
  EXPECT_EQ(values_of(gathered), want);
  for (const Add add : {Add::no, Add::yes}) {
    std::vector<double> sums = add == Add::yes ? values_of(y) : std::vector<double>(c.rows * width, 0.0);
    for (Index p = 0; p < c.rows * c.rule.top_k; ++p)
      for (Index d = 0; d < width; ++d) sums[rows.slot(p) / c.rule.top_k * width + d] += double(z(p, d));
    const auto out = bench.copy(y);
    combine_rows<T>(bench.dev, rows, z, add, out);
    EXPECT_LE(difference(values_of(out), sums), tolerance<T>);
  }
}

TEST(expert_rows, gather_and_combine_agree_with_plain_loops) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (const Index width : {1, 7, 16, 40})
    for (int i = 0; i < 6; ++i) {
      const Case c(random, Kind::continuous);
      expect_gather_and_combine<double>(c, width);
      expect_gather_and_combine<float>(c, width);
      expect_gather_and_combine<bf16>(c, width);
    }
}

template <class T>
void expect_weighted(const Case& c, Index width, Activation activation) {
  Workbench bench;
  Tables<Acc<T>> t(bench, c);
  t.run(bench, c);
  const ExpertRows rows = grouped(bench, c, t.chosen);
  const Index slots = c.rows * c.rule.top_k;
  const auto gate_up = bench.normal<T>(slots, 2 * width), dgate_up = bench.normal<T>(slots, 2 * width);
  for (Index i = 0; i < Index(gate_up.span()); ++i) gate_up.data()[i] = T(4 * double(gate_up.data()[i]));  // some values exceed the clamp limits
  const auto y = bench.normal<T>(slots, width), dy = bench.normal<T>(slots, width);
  const auto dw = bench.normal<Acc<T>>(c.rows, c.rule.top_k);
  std::vector<double> out, back(2 * slots * width), dweights(slots, 0.0);
  for (Index p = 0; p < slots; ++p)
    for (Index f = 0; f < width; ++f) {
      const double gate = double(gate_up(p, f)), number = double(gate_up(p, width + f)), d = double(dy(p, f));
      const double w = double(t.weights.data()[rows.slot(p)]);
      const bool clamped = activation == Activation::clamped_swiglu;
      const double slant = clamped ? 1.702 : 1, s = clamped ? std::min(gate, 7.0) : gate, sig = 1 / (1 + std::exp(-slant * s));
      const double up = clamped ? std::clamp(number, -7.0, 7.0) + 1 : number;
      out.push_back(w * up * s * sig);
      dweights[rows.slot(p)] += d * up * s * sig;
      back[2 * p * width + f] = s < gate ? 0 : w * d * up * sig * (1 + slant * s * (1 - sig));
      back[(2 * p + 1) * width + f] = clamped && std::abs(number) > 7 ? 0 : w * d * s * sig;
    }
  weighted_glu<T>(bench.dev, activation, rows, gate_up, t.weights, y);
  weighted_glu_backward<T>(bench.dev, activation, rows, dy, gate_up, t.weights, dgate_up, dw);
  EXPECT_LE(difference(values_of(y), out), tolerance<T>);
  EXPECT_LE(difference(values_of(dgate_up), back), tolerance<T>);
  EXPECT_LE(difference(values_of(dw), dweights), tolerance<Acc<T>>);
}

TEST(expert_rows, weighted_glu_agrees_with_plain_loops) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (const Index width : {1, 7, 16, 40})
    for (int i = 0; i < 6; ++i) {
      const Case c(random, Kind::continuous);
      for (const Activation a : {Activation::silu, Activation::clamped_swiglu}) {
        expect_weighted<double>(c, width, a);
        expect_weighted<float>(c, width, a);
        expect_weighted<bf16>(c, width, a);
      }
    }
}

// Experts without a gate, with squared ReLU: y = w max(x, 0)^2.
template <class T>
void expect_weighted_without_gate(const Case& c, Index width) {
  Workbench bench;
  Tables<Acc<T>> t(bench, c);
  t.run(bench, c);
  const ExpertRows rows = grouped(bench, c, t.chosen);
  const Index slots = c.rows * c.rule.top_k;
  const auto up = bench.normal<T>(slots, width), dup = bench.normal<T>(slots, width), y = bench.normal<T>(slots, width),
             dy = bench.normal<T>(slots, width);
  const auto dw = bench.normal<Acc<T>>(c.rows, c.rule.top_k);
  std::vector<double> out, back, dweights(slots, 0.0);
  for (Index p = 0; p < slots; ++p)
    for (Index f = 0; f < width; ++f) {
      const double x = std::max(0.0, double(up(p, f))), d = double(dy(p, f)), w = double(t.weights.data()[rows.slot(p)]);
      out.push_back(w * x * x), back.push_back(w * d * 2 * x);
      dweights[rows.slot(p)] += d * x * x;
    }
  weighted_glu<T>(bench.dev, Activation::relu2, rows, up, t.weights, y);
  weighted_glu_backward<T>(bench.dev, Activation::relu2, rows, dy, up, t.weights, dup, dw);
  EXPECT_LE(difference(values_of(y), out), tolerance<T>);
  EXPECT_LE(difference(values_of(dup), back), tolerance<T>);
  EXPECT_LE(difference(values_of(dw), dweights), tolerance<Acc<T>>);
}

TEST(expert_rows, weighted_activation_without_gate_agrees_with_loops) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (const Index width : {1, 7, 16, 40})
    for (int i = 0; i < 3; ++i) {
      const Case c(random, Kind::continuous);
      expect_weighted_without_gate<double>(c, width);
      expect_weighted_without_gate<float>(c, width);
      expect_weighted_without_gate<bf16>(c, width);
    }
}

// Tests a range of slots in the middle of the grouped rows, which begins and ends inside of experts.
template <class T>
void expect_weighted_bias(const Case& c, Index width) {
  Workbench bench;
  Tables<Acc<T>> t(bench, c);
  t.run(bench, c);
  const ExpertRows all = grouped(bench, c, t.chosen);
  const Index slots = c.rows * c.rule.top_k, first = slots / 3, n = slots - first - slots / 4;
  const auto slot = rows(all.slot, first, n);
  const auto y = bench.normal<T>(n, width), dy = bench.normal<T>(n, width), terms = bench.normal<T>(n, width);
  const auto bias = bench.normal<Acc<T>>(1, width), dw = bench.normal<Acc<T>>(c.rows, c.rule.top_k);
  const Tensor1<const Acc<T>> b(bias.data(), width);
  std::vector<double> out = values_of(y), scaled = values_of(dy), dweights = values_of(dw);
  for (Index p = 0; p < n; ++p)
    for (Index d = 0; d < width; ++d) {
      const double w = double(t.weights.data()[slot(p)]);
      out[p * width + d] += w * double(b(d));
      dweights[slot(p)] += double(dy(p, d)) * double(b(d));
      scaled[p * width + d] *= w;
    }
  add_weighted_bias<T>(bench.dev, slot, t.weights, b, y);
  EXPECT_LE(difference(values_of(y), out), tolerance<T>);
  for (const auto& to : {dw, Tensor2<Acc<T>>()}) weighted_bias_backward<T>(bench.dev, slot, dy, t.weights, b, to, terms);
  EXPECT_LE(difference(values_of(terms), scaled), tolerance<T>);
  EXPECT_LE(difference(values_of(dw), dweights), tolerance<Acc<T>>);
}

TEST(expert_rows, weighted_biases_agree_with_plain_loops) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (const Index width : {1, 7, 40}) {
    const Case c(random, Kind::continuous);
    expect_weighted_bias<double>(c, width);
    expect_weighted_bias<float>(c, width);
    expect_weighted_bias<bf16>(c, width);
  }
}

// The load-balancing loss and the z-loss of a sequence, written out. The kernel must add their gradients to dlogits.
TEST(balance, gradients_match_finite_differences) {
  on_cases([](Case c) {
    if (c.kind == Kind::few_values) return;
    c.rows = std::min<Index>(c.rows, 4);
    Workbench bench;
    Tables<double> t(bench, c);
    const bool softmax = c.rule.score == Routing::softmax;
    const double balance = 0.7, z = softmax ? 0.3 : 0;
    t.run(bench, c);
    const auto n = bench.normal<double>(c.experts);
    std::vector<double> count = values_of(n);
    add_choices<double>(bench.dev, t.chosen, n);
    for (std::size_t i = 0; i < t.chosen.span(); ++i) count[t.chosen.data()[i]] += 1;
    EXPECT_EQ(values_of(n), count);
    const auto loss = [&] {
      double all = 0;
      for (Index r = 0; r < c.rows; ++r) {
        double total = 0, along = 0, exps = 0;
        for (Index e = 0; e < c.experts; ++e) {
          const double x = std::exp(t.logits(r, e)), s = softmax ? x : x / (1 + x);
          exps += x, total += s, along += count[e] * s;
        }
        all += balance * along / total + z * std::log(exps) * std::log(exps);
      }
      return all;
    };
    const auto dlogits = bench.normal<double>(c.rows, c.experts);
    const auto before = values_of(dlogits);
    add_balance_gradient<double>(bench.dev, c.rule, t.scores, softmax ? t.lse : Tensor1<double>(), n, balance, z, dlogits);
    const auto slopes = slope(flat(t.logits), loss);
    for (std::size_t i = 0; i < slopes.size(); ++i) EXPECT_NEAR(dlogits.data()[i] - before[i], slopes[i], 1e-9 * (1 + std::abs(slopes[i])));
  });
}

}  // namespace gyr::testing::routing_suite
