// SPDX-License-Identifier: BSD-3-Clause
// Kernels of ternary linear layers: stated values of a fixed generator, and drawn cases against plain loops in double.
#include "kernels/ops/ternary/ternary.hpp"

#include <random>

#include "kernels/ops/gemm.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::ternary_suite {
namespace {

RowSections one_section(Index rows, Index columns) {
  RowSections s;
  s.count = 1, s.begin[1] = rows, s.elements[0] = double(rows * columns), s.adds[0] = true;
  return s;
}

// n values of the generator s = (1103515245 s + 12345) mod 2^31, value = ((s >> 8) mod 2^16) / 2^15 - 1, rounded to bf16.
std::vector<float> generated(std::uint64_t seed, std::size_t n) {
  std::vector<float> x(n);
  for (float& v : x) {
    seed = (1103515245 * seed + 12345) % (std::uint64_t(1) << 31);
    v = float(bf16(float((seed >> 8) % 65536) / 32768.0f - 1.0f));
  }
  return x;
}

// One layer on a single rank: scales, codes, integer products and outputs.
struct Reference {
  float weight_scale;
  std::vector<float> row_scales, q, x, products, y;
};
Reference computed(const std::vector<float>& w, const std::vector<float>& x, Index N, Index K) {
  Workbench bench;
  const Index R = Index(x.size()) / K;
  const auto W = bench.zeros<float>(N, K), X = bench.zeros<float>(R, K), q = bench.zeros<float>(N, K), codes = bench.zeros<float>(R, K),
             products = bench.zeros<float>(R, N), y = bench.zeros<float>(R, N);
  std::copy(w.begin(), w.end(), W.data()), std::copy(x.begin(), x.end(), X.data());
  const auto sums = bench.zeros<double>(1);
  const auto scales = bench.zeros<float>(1), largest = bench.zeros<float>(R);
  const RowSections sections = one_section(N, K);
  magnitude_sums<float>(bench.dev, Tensor2<const float>(W), sections, sums);
  weight_scales<float>(bench.dev, sections, sums, scales);
  quantize_weight<float>(bench.dev, Tensor2<const float>(W), sections, scales, Ternary::codes, q);
  row_magnitudes<float>(bench.dev, Tensor2<const float>(X), largest);
  quantize_rows<float>(bench.dev, Tensor2<const float>(X), largest, Ternary::codes, codes);
  linear<float>(bench.dev, Tensor2<const float>(codes), Tensor2<const float>(q), Matrix<float>(products));
  scale_products<float>(bench.dev, products, largest, sections, scales, 1, 0, y);
  const auto list = [](const auto& t) { return std::vector<float>(t.data(), t.data() + t.span()); };
  Reference r{scales(0), {}, list(q), list(codes), list(products), list(y)};
  for (Index i = 0; i < R; ++i) r.row_scales.push_back(ternary::row_scale(largest(i)));
  return r;
}

std::vector<float> block_of(const std::vector<float>& matrix, Index width, Index rows, Index columns) {
  std::vector<float> block;
  for (Index r = 0; r < rows; ++r) block.insert(block.end(), matrix.begin() + r * width, matrix.begin() + r * width + columns);
  return block;
}

// The stated values were computed with numpy in float.
TEST(ternary, generated_layer_has_the_stated_values) {
  const Index width = 512, N = 8, K = 256;
  std::vector<float> a = generated(1, 64 * width), b = generated(2, 256 * width);
  for (Index r = 0; r < 64; ++r) a[r * width + 7] = float(bf16(64 * a[r * width + 7]));
  EXPECT_EQ(b[0], 0.10009765625f);
  EXPECT_EQ(a[1], -0.01025390625f);
  const Reference r = computed(block_of(b, width, N, K), block_of(a, width, 2, K), N, K);
  EXPECT_FLOAT_EQ(r.weight_scale, 2.071932077407837f);
  EXPECT_EQ(std::count(r.q.begin(), r.q.end(), -1.0f), 777);
  EXPECT_EQ(std::count(r.q.begin(), r.q.end(), 0.0f), 546);
  EXPECT_EQ(std::count(r.q.begin(), r.q.end(), 1.0f), 725);
  EXPECT_FLOAT_EQ(r.row_scales[0], 2.056680202484131f);
  EXPECT_FLOAT_EQ(r.row_scales[1], 3.7910447120666504f);
  EXPECT_EQ(std::vector<float>(r.products.begin(), r.products.begin() + N), (std::vector<float>{148, 38, -15, 117, -131, 1, -112, -156}));
  EXPECT_NEAR(r.y[0], 34.731171589764266, 1e-5);
}

// -63.5 is a tie, which goes to the even code -64.
TEST(ternary, ties_of_a_row_go_to_even_codes) {
  const Reference r =
      computed({0.7f, -0.2f, 0.05f, -1.3f, 0, 0.9f, -0.45f, 0.35f}, {0.5f, -1.27f, 0.0049f, 1.27f, -0.005f, 0.01f, 0.015f, -0.635f}, 1, 8);
  EXPECT_FLOAT_EQ(r.weight_scale, 2.02531648f);
  EXPECT_EQ(r.q, (std::vector<float>{1, 0, 0, -1, 0, 1, -1, 1}));
  EXPECT_FLOAT_EQ(r.row_scales[0], 100);
  EXPECT_EQ(r.x, (std::vector<float>{50, -127, 0, 127, 0, 1, 2, -64}));
  EXPECT_EQ(r.products[0], -142);
  EXPECT_NEAR(r.y[0], -0.70112499, 1e-6);
}

// Rows of a case, split into sections of drawn lengths; `adds` is drawn too.
RowSections drawn_sections(std::mt19937& random, Index N, Index K) {
  RowSections s;
  s.count = int(1 + random() % std::min<Index>(N, RowSections::most));
  for (int i = 0; i < s.count; ++i) {
    s.begin[i + 1] = i + 1 == s.count ? N : s.begin[i] + 1 + Index(random() % (N - s.begin[i] - (s.count - 1 - i)));
    s.adds[i] = random() % 3 > 0;
    s.elements[i] = double((1 + random() % 2) * (s.begin[i + 1] - s.begin[i]) * K);
  }
  return s;
}

template <class T>
void expect_plain_loops(std::mt19937& random) {
  using A = Acc<T>;
  const double close = sizeof(A) == 8 ? 1e-14 : 2e-6, narrow = sizeof(T) == 2 ? 1.0 / 256 : close;
  const Index R = 1 + Index(random() % 20), N = 1 + Index(random() % 40), K = 1 + Index(random() % 300);
  const Values w = rounded<T>(random_values(N * K, random())), x = rounded<T>(random_values(R * K, random())),
               before = rounded<T>(random_values(R * N, random()));
  const RowSections sections = drawn_sections(random, N, K);
  Block<T> W(N, K, w, 3), X(R, K, x, 2), Y(R, N, before, 1);
  Workbench bench;
  const auto sums = bench.zeros<double>(sections.count);
  const auto scales = bench.zeros<A>(sections.count), largest = bench.zeros<A>(R);
  const auto products = bench.zeros<A>(R, N);
  const auto q = bench.zeros<T>(N, K), w_hat = bench.zeros<T>(N, K), codes = bench.zeros<T>(R, K), x_hat = bench.zeros<T>(R, K);
  magnitude_sums<T>(bench.dev, W.template matrix<const T>(), sections, sums);
  for (int s = 0; s < sections.count; ++s) {
    double sum = 0;
    for (Index i = sections.begin[s] * K; i < sections.begin[s + 1] * K; ++i) sum += std::abs(w[i]);
    EXPECT_NEAR(sums(s), sections.adds[s] ? sum : 0, 1e-12 * (1 + sum)) << "section " << s;
    sums(s) = sum;
  }
  weight_scales<A>(bench.dev, sections, sums, scales);
  quantize_weight<T>(bench.dev, W.template matrix<const T>(), sections, scales, Ternary::codes, q);
  quantize_weight<T>(bench.dev, W.template matrix<const T>(), sections, scales, Ternary::values, w_hat);
  row_magnitudes<T>(bench.dev, X.template matrix<const T>(), largest);
  quantize_rows<T>(bench.dev, X.template matrix<const T>(), largest, Ternary::codes, codes);
  quantize_rows<T>(bench.dev, X.template matrix<const T>(), largest, Ternary::values, x_hat);
  const auto expect_code = [&](double code, double exact, double low, double high) {  // at a tie, either neighbour
    const double expected = std::min(std::max(std::nearbyint(exact), low), high);
    EXPECT_TRUE(code == expected || std::abs(std::abs(exact - std::trunc(exact)) - 0.5) < 1e-4) << code << " of " << exact;
  };
  for (Index n = 0; n < N; ++n) {
    const int s = sections.of(n);
    const double scale = 1 / std::max(sums(s) / sections.elements[s], 1e-5);
    ASSERT_NEAR(double(scales(s)), scale, 4 * close * scale);
    for (Index k = 0; k < K; ++k) {
      expect_code(double(q(n, k)), w[n * K + k] * scale, -1, 1);
      EXPECT_NEAR(double(w_hat(n, k)), double(q(n, k)) / scale, 4 * narrow / scale);
    }
  }
  for (Index r = 0; r < R; ++r) {
    double most = 0;
    for (Index k = 0; k < K; ++k) most = std::max(most, std::abs(x[r * K + k]));
    EXPECT_EQ(double(largest(r)), most);
    const double scale = 127 / std::max(most, 1e-5);
    for (Index k = 0; k < K; ++k) {
      expect_code(double(codes(r, k)), x[r * K + k] * scale, -128, 127);
      EXPECT_NEAR(double(x_hat(r, k)), double(codes(r, k)) / scale, 4 * narrow * most);
    }
    for (Index n = 0; n < N; ++n) products(r, n) = A(float(Index(random() % 2001) - 1000));
  }
  const double alpha = 0.75, beta = random() % 2 ? 0 : -0.5;
  scale_products<T>(bench.dev, products, largest, sections, scales, alpha, beta, Y.matrix());
  const Values y = Y.values();
  for (Index r = 0; r < R; ++r)
    for (Index n = 0; n < N; ++n) {
      const double expected =
          alpha * double(products(r, n)) * std::max(double(largest(r)), 1e-5) / 127 / double(scales(sections.of(n))) + beta * before[r * N + n];
      EXPECT_NEAR(y[r * N + n], expected, 4 * narrow * (1 + std::abs(expected))) << r << ", " << n;
    }
}

TEST(ternary, drawn_layers_equal_plain_loops) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    expect_plain_loops<double>(random);
    expect_plain_loops<float>(random);
    expect_plain_loops<bf16>(random);
  }
}

// Sums of codes are whole numbers below 2^24, which float holds exactly.
TEST(ternary, products_of_codes_are_exact_in_bf16) {
  std::mt19937 random(seed_of_run());
  Workbench bench;
  const Index R = 9, N = 7, K = 3000;
  const auto x = bench.zeros<bf16>(R, K), q = bench.zeros<bf16>(N, K);
  const auto y = bench.zeros<float>(R, N);
  for (Index i = 0; i < R * K; ++i) x.data()[i] = bf16(float(Index(random() % 256) - 128));
  for (Index i = 0; i < N * K; ++i) q.data()[i] = bf16(float(Index(random() % 3) - 1));
  linear<bf16, float>(bench.dev, Tensor2<const bf16>(x), Tensor2<const bf16>(q), Matrix<float>(y));
  for (Index r = 0; r < R; ++r)
    for (Index n = 0; n < N; ++n) {
      Index sum = 0;
      for (Index k = 0; k < K; ++k) sum += Index(float(x(r, k))) * Index(float(q(n, k)));
      EXPECT_EQ(Index(y(r, n)), sum);
    }
}

TEST(ternary, values_that_are_not_numbers_stay_visible) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinite}) {
    const Reference row = computed({1, -1, 1, 1}, {1, bad}, 2, 2), weight = computed({1, bad, 1, 1}, {1, 1}, 2, 2);
    for (const float y : row.y) EXPECT_FALSE(std::isfinite(y)) << bad;
    EXPECT_FALSE(std::isfinite(weight.y[0])) << bad;
  }
  const Reference zero = computed({0, 0, 0, 0}, {0, 0}, 2, 2);
  EXPECT_EQ(zero.y, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace gyr::testing::ternary_suite
