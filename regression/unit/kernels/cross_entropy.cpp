// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/cross_entropy.hpp"

#include "regression/support/tensors.hpp"

namespace gyr::testing::cross_entropy_suite {

namespace {

constexpr Index height = 9, vocab_size = 1201;  // vocab_size is no multiple of the kernels' pieces or lanes
constexpr double scale = 0.125;

Tensor1<const double> scale_on(Workbench& bench) {
  const auto there = bench.zeros<double>(1);
  there(0) = scale;
  return there;
}

// Labels spread over the vocabulary, including the first and the last token, and one ignored row.
Tensor1<Token> some_labels(Workbench& bench) {
  const auto labels = bench.zeros<Token>(height);
  for (Index r = 0; r < height; ++r) labels(r) = Token(r * (vocab_size - 1) / (height - 1));
  labels(3) = ignored_label;
  return labels;
}

struct Result {
  std::vector<double> loss, dlogits;
};

Result plain(const std::vector<double>& logits, Tensor1<const Token> labels, const LossTerms& terms = {}) {
  Result p{std::vector<double>(height), std::vector<double>(logits.size())};
  for (Index r = 0; r < height; ++r) {
    if (labels(r) == ignored_label) continue;
    const double *const l = logits.data() + r * vocab_size, top = *std::max_element(l, l + vocab_size);
    double sum = 0;
    for (Index v = 0; v < vocab_size; ++v) sum += std::exp(l[v] - top);
    double entropy = 0;  // of the softmax
    for (Index v = 0; v < vocab_size; ++v)
      if (const double q = std::exp(l[v] - top) / sum; q > 0) entropy -= q * std::log(q);
    const double lse = std::log(sum) + top, smoothed_term = terms.smoothing / vocab_size, label_term = 1 - terms.smoothing;
    p.loss[r] = lse + terms.z * lse * lse - terms.entropy * entropy;
    for (Index v = 0; v < vocab_size; ++v) {
      const double wanted = smoothed_term + label_term * (v == labels(r));
      if (wanted > 0) p.loss[r] -= wanted * l[v];
      p.dlogits[r * vocab_size + v] = scale * ((1 + 2 * terms.z * lse) * std::exp(l[v] - top) / sum - wanted);
      if (const double q = std::exp(l[v] - top) / sum; q > 0) p.dlogits[r * vocab_size + v] += scale * terms.entropy * q * (std::log(q) + entropy);
    }
  }
  return p;
}

// Loss and gradient of tensor-parallel ranks that hold `parts` columns each, followed by padding. Maxima and sums are
// reduced by hand.
template <class T>
Result sharded(Workbench& bench, Tensor2<const Acc<T>> logits, Tensor1<const Token> labels, const std::vector<Index>& parts, Index padding,
               bool in_place = false, const LossTerms& terms = {}, double cap = 0) {
  using A = Acc<T>;
  std::vector<Tensor2<A>> shards;
  std::vector<Index> firsts;
  const auto top = bench.zeros<A>(height), part_top = bench.zeros<A>(height);
  const auto sums = bench.zeros<A>(terms.sums(), height), part_sums = bench.zeros<A>(terms.sums(), height);
  std::fill_n(top.data(), height, std::numeric_limits<A>::lowest());
  Index first = 0;
  for (const Index count : parts) {
    const auto shard = bench.normal<A>(height, count + padding);
    for (Index r = 0; r < height; ++r)
      for (Index v = 0; v < count + padding; ++v) shard(r, v) = v < count ? logits(r, first + v) : A(1e30);  // the kernels must not read the padding
    logits_top<A>(bench.dev, shard, count, part_top);
    for (Index r = 0; r < height; ++r) top(r) = std::max(top(r), part_top(r));
    shards.push_back(shard);
    firsts.push_back(first);
    first += count;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    logits_sums<A>(bench.dev, shards[i], parts[i], top, labels, firsts[i], part_sums);
    for (Index k = 0; k < terms.sums() * height; ++k) sums.data()[k] += part_sums.data()[k];
  }
  const auto loss = bench.zeros<double>(height);
  cross_entropy<A>(bench.dev, sums, top, labels, terms, loss);
  Result result{values_of(loss), std::vector<double>(height * vocab_size)};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto dlogits = bench.normal<T>(height, parts[i] + padding);
    if constexpr (std::is_same_v<T, A>)
      if (in_place) dlogits = shards[i];
    cross_entropy_backward<T>(bench.dev, shards[i], parts[i], top, sums, labels, firsts[i], scale_on(bench), terms, dlogits, cap);
    for (Index r = 0; r < height; ++r)
      for (Index v = 0; v < parts[i] + padding; ++v) {
        if (v < parts[i]) result.dlogits[r * vocab_size + firsts[i] + v] = double(dlogits(r, v));
        else EXPECT_EQ(double(dlogits(r, v)), 0);
      }
  }
  return result;
}

// Gradients of rows with weights of their own, and the entropies of the rows.
template <class T>
void weighs_rows() {
  using A = Acc<T>;
  Workbench bench;
  const auto logits = bench.normal<A>(height, vocab_size);
  const auto labels = some_labels(bench);
  const auto of_loss = bench.normal<double>(height), of_entropy = bench.normal<double>(height);
  const LossTerms entropy{0, 0, vocab_size, 1};
  const Result base = plain(values_of(logits), labels), all = plain(values_of(logits), labels, entropy);
  const auto top = bench.zeros<A>(height);
  const auto sums = bench.zeros<A>(4, height);
  const auto dlogits = bench.normal<T>(height, vocab_size);
  const auto H = bench.zeros<double>(height);
  logits_top<A>(bench.dev, logits, vocab_size, top);
  logits_sums<A>(bench.dev, logits, vocab_size, top, labels, 0, sums);
  row_entropies<A>(bench.dev, sums, labels, H);
  cross_entropy_backward<T>(bench.dev, logits, vocab_size, top, sums, labels, 0, scale_on(bench), entropy, dlogits, 0, {of_loss, of_entropy});
  std::vector<double> expected(all.dlogits.size()), entropies(height);
  for (Index r = 0; r < height; ++r) {
    entropies[r] = base.loss[r] - all.loss[r];
    for (Index i = r * vocab_size; i < (r + 1) * vocab_size; ++i)
      expected[i] = of_loss(r) * base.dlogits[i] + of_entropy(r) * (all.dlogits[i] - base.dlogits[i]);
  }
  EXPECT_LE(difference(values_of(dlogits), expected), tolerance<T>);
  EXPECT_LE(difference(values_of(H), entropies), tolerance<A>);
}

template <class T>
void agrees_with_plain_loops() {
  Workbench bench;
  const auto logits = bench.normal<Acc<T>>(height, vocab_size);
  const auto labels = some_labels(bench);
  const Result want = plain(values_of(logits), labels), got = sharded<T>(bench, logits, labels, {vocab_size}, 0);
  EXPECT_LE(difference(got.loss, want.loss), tolerance<Acc<T>>);
  EXPECT_LE(difference(got.dlogits, want.dlogits), tolerance<T>);
  EXPECT_EQ(got.loss[3], 0);
  for (const LossTerms& terms : {LossTerms{0.1, 0, vocab_size}, LossTerms{0, 1e-2, vocab_size}, LossTerms{0.3, 0.05, vocab_size},
                                 LossTerms{1, 0, vocab_size}, LossTerms{0, 0, vocab_size, 0.7}, LossTerms{0.2, 0.01, vocab_size, 0.3}})
    for (const bool in_place : {false, true}) {
      const std::vector<Index> parts{601, 1, 599};  // some shards end within a 16-byte vector, and some only with their padding
      const Result more = plain(values_of(logits), labels, terms), split = sharded<T>(bench, logits, labels, parts, 7, in_place, terms);
      EXPECT_LE(difference(split.loss, more.loss), tolerance<Acc<T>>) << terms.smoothing << " " << terms.z;
      EXPECT_LE(difference(split.dlogits, more.dlogits), tolerance<T>) << terms.smoothing << " " << terms.z;
      EXPECT_EQ(split.loss[3], 0);
    }
}

}  // namespace

TEST(cross_entropy, matches_reference_loops) {
  agrees_with_plain_loops<double>();
  agrees_with_plain_loops<float>();
  agrees_with_plain_loops<bf16>();
}

TEST(cross_entropy, sharded_vocabulary_gives_unsharded_loss_and_gradient) {
  Workbench bench;
  const auto logits = bench.normal<double>(height, vocab_size);
  const auto labels = some_labels(bench);
  const Result full = sharded<double>(bench, logits, labels, {vocab_size}, 0);
  for (const Index padding : {0, 7})
    for (const std::vector<Index>& parts : {std::vector<Index>{600, 601}, {128, 0, 1, 1072}}) {  // one rank has no valid column
      const Result split = sharded<double>(bench, logits, labels, parts, padding);
      EXPECT_LE(difference(split.loss, full.loss), 1e-13);
      EXPECT_LE(difference(split.dlogits, full.dlogits), 1e-13);
    }
}

TEST(cross_entropy, gradient_may_overwrite_the_logits) {
  Workbench bench;
  const auto logits = bench.normal<float>(height, vocab_size);
  const auto labels = some_labels(bench);
  const Result separate = sharded<float>(bench, logits, labels, {600, 601}, 3), in_place = sharded<float>(bench, logits, labels, {600, 601}, 3, true);
  EXPECT_LE(difference(in_place.dlogits, separate.dlogits), 1e-6);
}

// Each element of the gradient equals the one without the cap, times the derivative of the cap at that logit.
TEST(cross_entropy, gradient_includes_slope_of_soft_cap) {
  Workbench bench;
  const double cap = 2.5;
  const auto expect = [&]<class T>(std::type_identity<T>, bool in_place) {
    const auto logits = bench.normal<Acc<T>>(height, vocab_size);
    soft_cap<Acc<T>>(bench.dev, cap, logits);
    const auto labels = some_labels(bench);
    const std::vector<Index> parts{601, 1, 599};
    const LossTerms terms{0.3, 0.05, vocab_size};
    Result want = plain(values_of(logits), labels, terms);
    for (Index i = 0; i < height * vocab_size; ++i) want.dlogits[i] *= 1 - std::pow(double(logits.data()[i]) / cap, 2);
    EXPECT_LE(difference(sharded<T>(bench, logits, labels, parts, 7, in_place, terms, cap).dlogits, want.dlogits), tolerance<T>);
  };
  for (const bool in_place : {false, true}) {
    expect(std::type_identity<double>(), in_place);
    expect(std::type_identity<float>(), in_place);
    expect(std::type_identity<bf16>(), in_place);
  }
}

TEST(cross_entropy, gradient_equals_finite_differences) {
  Workbench bench;
  const Index rows = 3, few = 11;
  for (const auto& [terms, cap] : {std::pair{LossTerms{}, 0.0},
                                   {LossTerms{0.2, 0.1, few}, 0.0},
                                   {LossTerms{}, 1.5},
                                   {LossTerms{0.2, 0.1, few}, 0.7},
                                   {LossTerms{0, 0, few, 0.6}, 0.0},
                                   {LossTerms{0.2, 0.1, few, 0.4}, 0.9}}) {
    const auto logits = bench.normal<double>(rows, few), sums = bench.zeros<double>(terms.sums(), rows), dlogits = bench.zeros<double>(rows, few);
    const auto top = bench.zeros<double>(rows), loss = bench.zeros<double>(rows);
    const auto labels = bench.zeros<Token>(rows);
    labels(0) = 4, labels(1) = ignored_label, labels(2) = 10;
    const auto capped = bench.zeros<double>(rows, few);
    const auto total = [&] {
      std::copy_n(logits.data(), logits.span(), capped.data());
      if (cap > 0) soft_cap<double>(bench.dev, cap, capped);
      logits_top<double>(bench.dev, capped, few, top);
      logits_sums<double>(bench.dev, capped, few, top, labels, 0, sums);
      cross_entropy<double>(bench.dev, sums, top, labels, terms, loss);
      return scale * (loss(0) + loss(1) + loss(2));
    };
    total();
    cross_entropy_backward<double>(bench.dev, capped, few, top, sums, labels, 0, scale_on(bench), terms, dlogits, cap);
    EXPECT_LE(difference(values_of(dlogits), slope(flat(logits), total)), 1e-9);
  }
}

TEST(cross_entropy, equal_logits_give_log_vocab_size_loss) {
  Workbench bench;
  for (const float value : {0.0f, -3.0f, 1e4f}) {
    const auto logits = bench.zeros<float>(height, vocab_size);
    std::fill_n(logits.data(), logits.span(), value);
    const auto labels = some_labels(bench);
    const Result got = sharded<float>(bench, logits, labels, {600, 601}, 3);
    for (Index r = 0; r < height; ++r) EXPECT_NEAR(got.loss[r], labels(r) == ignored_label ? 0 : std::log(double(vocab_size)), 1e-6);
  }
}

TEST(cross_entropy, extreme_logits_stay_finite) {
  Workbench bench;
  const auto logits = bench.normal<float>(height, vocab_size);
  for (Index i = 0; i < height * vocab_size; ++i) logits.data()[i] *= 1e4f;
  logits(0, 5) = -std::numeric_limits<float>::infinity();  // logit of a forbidden token
  const auto labels = some_labels(bench);
  const Result want = plain(values_of(logits), labels), got = sharded<float>(bench, logits, labels, {600, 601}, 3);
  EXPECT_LE(difference(got.loss, want.loss), 1e-6);
  EXPECT_LE(difference(got.dlogits, want.dlogits), 1e-6);
  EXPECT_GT(*std::max_element(got.loss.begin(), got.loss.end()), 1e4);
}

// Entropy and its gradient of four logits, from the formulas H = -sum p ln p and dH/dl_v = -p_v (ln p_v + H).
TEST(cross_entropy, entropy_of_known_logits_has_known_values) {
  Workbench bench;
  const auto logits = bench.zeros<double>(1, 5), dlogits = bench.zeros<double>(1, 5), sums = bench.zeros<double>(4, 1);
  const auto top = bench.zeros<double>(1), loss = bench.zeros<double>(1), plain_loss = bench.zeros<double>(1);
  const auto labels = bench.zeros<Token>(1);
  std::copy_n(std::array{0.3, 2.1, -1.2, 1.4, -std::numeric_limits<double>::infinity()}.data(), 5, logits.data());  // the last token is forbidden
  const auto gradient = [&](const LossTerms& terms, Tensor1<double> loss) {
    logits_top<double>(bench.dev, logits, 5, top);
    logits_sums<double>(bench.dev, logits, 5, top, labels, 0, rows(sums, 0, terms.sums()));
    cross_entropy<double>(bench.dev, rows(sums, 0, terms.sums()), top, labels, terms, loss);
    cross_entropy_backward<double>(bench.dev, logits, 5, top, rows(sums, 0, terms.sums()), labels, 0, {}, terms, dlogits);
    return values_of(dlogits);
  };
  const std::vector<double> plain_gradient = gradient({}, plain_loss), bonus_gradient = gradient({0, 0, 5, 1}, loss);
  EXPECT_NEAR(plain_loss(0) - loss(0), 0.981325614677, 1e-12);
  const std::array dH{0.131223575492, -0.265735450360, 0.061847522844, 0.072664352024, 0.0};
  for (std::size_t v = 0; v < dH.size(); ++v) EXPECT_NEAR(plain_gradient[v] - bonus_gradient[v], dH[v], 1e-12) << v;
}

// The gradient of a softmax sums to zero over the vocabulary.
TEST(cross_entropy, the_gradient_of_a_row_sums_to_zero) {
  Workbench bench;
  const auto logits = bench.normal<float>(height, vocab_size);
  const Result got = sharded<float>(bench, logits, some_labels(bench), {vocab_size}, 0);
  for (Index r = 0; r < height; ++r) {
    double sum = 0;
    for (Index v = 0; v < vocab_size; ++v) sum += got.dlogits[r * vocab_size + v];
    EXPECT_NEAR(sum, 0, 1e-6 * scale);
  }
}

TEST(cross_entropy, nan_and_infinity_propagate_to_loss) {
  for (const float bad : {NAN, INFINITY}) {
    Workbench bench;
    const auto logits = bench.normal<float>(height, vocab_size);
    logits(1, 77) = bad;
    const Result got = sharded<float>(bench, logits, some_labels(bench), {600, 601}, 0);
    EXPECT_TRUE(std::isnan(got.loss[1]));
    EXPECT_TRUE(std::isfinite(got.loss[0]));
  }
}

TEST(cross_entropy, label_outside_the_shard_adds_nothing) {
  Workbench bench;
  const auto logits = bench.normal<float>(height, 8);
  const auto top = bench.zeros<float>(height), none = bench.zeros<float>(height);
  const auto sums = bench.normal<float>(2, height);
  const auto labels = bench.zeros<Token>(height);
  for (Index r = 0; r < height; ++r) labels(r) = Token(100 + r);  // this rank holds tokens 98 and 99 and six columns of padding
  logits_top<float>(bench.dev, logits, 2, top);
  logits_sums<float>(bench.dev, logits, 2, top, labels, 98, sums);
  for (Index r = 0; r < height; ++r) EXPECT_EQ(sums(1, r), 0);
  logits_top<float>(bench.dev, logits, 0, none);
  for (Index r = 0; r < height; ++r) EXPECT_EQ(none(r), std::numeric_limits<float>::lowest());
}

// Each shard returns minus the id of its first token that has the row maximum. The maximum over all shards is then the
// first such token.
template <class A>
void likeliest_are_found() {
  Workbench bench;
  const auto logits = bench.normal<A>(height, vocab_size);
  // the maximum occurs twice in a row
  for (Index r = 0; r < height; ++r) logits(r, r * 150 % vocab_size) = logits(r, (r * 150 + 333) % vocab_size) = A(50);
  for (const std::vector<Index>& parts : {std::vector<Index>{vocab_size}, {601, 1, 599}, {128, 0, 1, 1072}}) {
    std::vector<A> found(height, std::numeric_limits<A>::lowest());
    Index first = 0;
    for (const Index count : parts) {
      const auto shard = bench.normal<A>(height, count + 3);
      const auto top = bench.zeros<A>(height);
      for (Index r = 0; r < height; ++r)
        for (Index v = 0; v < count + 3; ++v) shard(r, v) = v < count ? logits(r, first + v) : A(50);  // the kernel must not find the padding
      std::fill_n(top.data(), height, A(50));
      const auto here = bench.zeros<A>(height);
      logits_argmax<A>(bench.dev, shard, count, top, first, here);
      for (Index r = 0; r < height; ++r) found[r] = std::max(found[r], here(r));
      first += count;
    }
    for (Index r = 0; r < height; ++r) EXPECT_EQ(-found[r], A(std::min(r * 150 % vocab_size, (r * 150 + 333) % vocab_size))) << "row " << r;
  }
}

TEST(cross_entropy, most_likely_token_is_found_across_shards) {
  likeliest_are_found<double>();
  likeliest_are_found<float>();
}

TEST(cross_entropy, weights_of_rows_scale_loss_and_entropy) {
  weighs_rows<double>();
  weighs_rows<float>();
  weighs_rows<bf16>();
}

}  // namespace gyr::testing::cross_entropy_suite
