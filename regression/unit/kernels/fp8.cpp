// SPDX-License-Identifier: BSD-3-Clause
// Rounding to FP8: codes of all bf16 values against torch, stated values of a fixed generator, and drawn matrices against loops in double.
#include "kernels/ops/fp8/fp8.hpp"

#include <bit>
#include <random>

#include "kernels/ops/gemm.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::fp8_suite {
namespace {

using fp8::Format;

constexpr Format formats[] = {Format::e4m3, Format::e5m2};
constexpr double largest_value(Format f) { return f == Format::e4m3 ? 448 : 57344; }

// FNV-1a of a sequence of bytes, by which the results of torch are stated.
class Hash {
 public:
  void add(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

// torch 2.15 on a host: x.clamp(-largest, largest).to(float8_e4m3fn or float8_e5m2) of all 65536 bit patterns in order, with 0x7f or 0xff for
// NaN. Their SHA-256 begins with 556222ae and bd448285.
TEST(fp8, codes_of_all_bf16_values_are_torchs) {
  for (const Format f : formats) {
    Hash hash;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) hash.add(fp8::encode(std::bit_cast<float>(bits << 16), f));
    EXPECT_EQ(hash.value(), f == Format::e4m3 ? 0xf9dea88c05be79a5u : 0x35fddb0cac315705u) << int(f);
  }
}

// The same for the values of all codes, as the bytes of floats in order without NaN.
TEST(fp8, values_of_all_codes_are_torchs) {
  for (const Format f : formats) {
    Hash hash;
    int nan = 0;
    for (int code = 0; code < 256; ++code) {
      const float value = fp8::decode(std::uint8_t(code), f);
      nan += std::isnan(value);
      for (int byte = 0; byte < 4 && !std::isnan(value); ++byte) hash.add(std::uint8_t(std::bit_cast<std::uint32_t>(value) >> (8 * byte)));
      if (std::isfinite(value)) {
        EXPECT_EQ(fp8::encode(value, f), code) << value;
      }
    }
    EXPECT_EQ(hash.value(), f == Format::e4m3 ? 0x9d09ddc37a47fa25u : 0xc6d565e59341eaa5u) << int(f);
    EXPECT_EQ(nan, f == Format::e4m3 ? 2 : 6);
  }
}

TEST(fp8, ties_go_to_even_codes) {
  const auto expect = [](float x, int e4m3, int e5m2) {
    EXPECT_EQ(fp8::encode(x, Format::e4m3), e4m3) << x;
    EXPECT_EQ(fp8::encode(x, Format::e5m2), e5m2) << x;
    EXPECT_EQ(fp8::encode(-x, Format::e4m3), e4m3 | 0x80) << -x;
  };
  expect(1.0625f, 0x38, 0x3c), expect(1.1875f, 0x3a, 0x3d), expect(17, 0x58, 0x4c), expect(19, 0x5a, 0x4d);
  expect(464, 0x7e, 0x5f), expect(1e9f, 0x7e, 0x7b), expect(61440, 0x7e, 0x7b), expect(INFINITY, 0x7e, 0x7b);
  expect(0x1p-10f, 0x00, 0x14), expect(0x1.8p-10f, 0x01, 0x16), expect(0x3p-10f, 0x02, 0x1a), expect(0x1p-17f, 0, 0), expect(1e-42f, 0, 0);
  expect(0.1f, 0x1d, 0x2e), expect(3.14159274f, 0x45, 0x42), expect(0, 0, 0);
}

TEST(fp8, scales_are_the_largest_that_fit) {
  for (const auto& [largest, code] : {std::pair{1.0f, 119}, {3.0f, 120}, {300.0f, 127}, {448.0f, 127}, {1000.0f, 129}}) {
    EXPECT_EQ(fp8::e8m0(fp8::scale_exponent(largest, Format::e4m3)), code) << largest;
    EXPECT_EQ(fp8::decode_e8m0(std::uint8_t(code)), std::ldexp(1.0f, code - 127));
  }
  EXPECT_EQ(fp8::decode_e8m0(0), 0x1p-127f);
  EXPECT_TRUE(std::isnan(fp8::decode_e8m0(255)));
  for (const float without : {0.0f, float(INFINITY), float(NAN)}) EXPECT_EQ(fp8::scale_exponent(without, Format::e4m3), 0);
  std::mt19937 random(seed_of_run());
  for (int i = 0; i < 20000; ++i) {
    const float largest = std::bit_cast<float>(std::uint32_t(0x08000000u + random() % 0x77000000u));  // from 2^-111 to the largest float
    for (const Format f : formats) {
      const double scaled = std::ldexp(double(largest), fp8::scale_exponent(largest, f));
      EXPECT_TRUE(scaled <= largest_value(f) && 2 * scaled > largest_value(f)) << largest;
    }
  }
}

// n values of the generator s = (1103515245 s + 12345) mod 2^31, value = ((s >> 8) mod 2^16) / 2^15 - 1, rounded to bf16.
Tensor2<float> generated(Workbench& bench, std::uint64_t seed, Index rows, Index columns) {
  const auto x = bench.zeros<float>(rows, columns);
  for (Index i = 0; i < rows * columns; ++i) {
    seed = (1103515245 * seed + 12345) % (std::uint64_t(1) << 31);
    x.data()[i] = float(bf16(float((seed >> 8) % 65536) / 32768.0f - 1.0f));
  }
  return x;
}

struct Rounded {
  Tensor2<float> largest, codes, values;
  double code_sum = 0;
};
Rounded round(Workbench& bench, Tensor2<const float> x, const Fp8Block& block) {
  const Index R = x.extent(0), C = x.extent(1);
  Rounded r{bench.zeros<float>(block.rows_of_blocks(R), block.columns_of_blocks(C)), bench.zeros<float>(R, C), bench.zeros<float>(R, C)};
  block_maxima<float>(bench.dev, x, block, r.largest);
  round_to_fp8<float>(bench.dev, x, Format::e4m3, block, r.largest, Fp8Form::codes, r.codes);
  round_to_fp8<float>(bench.dev, x, Format::e4m3, block, r.largest, Fp8Form::values, r.values);
  for (const double code : values_of(r.codes)) r.code_sum += code;
  return r;
}

std::vector<double> product(const Tensor2<float>& a, const Tensor2<float>& b) {
  std::vector<double> c;
  for (Index i = 0; i < Index(a.extent(0)); ++i)
    for (Index j = 0; j < Index(b.extent(0)); ++j) {
      double sum = 0;
      for (Index k = 0; k < Index(a.extent(1)); ++k) sum += double(a(i, k)) * double(b(j, k));
      c.push_back(sum);
    }
  return c;
}
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0, all = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]), all += b[i] * b[i];
  return std::sqrt(squares / all);
}

// Sums of codes, scales and errors were computed with numpy. Column 7 of A is an outlier channel.
TEST(fp8, generated_product_has_the_stated_values) {
  Workbench bench;
  const auto a = generated(bench, 1, 64, 512), b = generated(bench, 2, 256, 512);
  for (Index r = 0; r < 64; ++r) a(r, 7) *= 64;
  EXPECT_EQ(a(0, 0), 0.55078125f);
  EXPECT_EQ(b(0, 1), -0.73828125f);
  const std::vector<double> exact = product(a, b);
  const auto exponents = [](const Tensor2<float>& largest) {
    std::vector<int> of;
    for (Index j = 0; j < Index(largest.extent(1)); ++j) of.push_back(fp8::scale_exponent(largest(0, j), Format::e4m3));
    return of;
  };
  const Rounded rows = round(bench, a, {1, 128}), weight = round(bench, b, {128, 128});
  EXPECT_EQ(rows.code_sum, 5351934);
  EXPECT_EQ(weight.code_sum, 22545665);
  EXPECT_EQ(exponents(rows.largest), (std::vector<int>{2, 8, 8, 8}));
  EXPECT_EQ(exponents(weight.largest), (std::vector<int>{8, 8, 8, 8}));
  const std::vector<double> blocks = product(rows.values, weight.values);
  EXPECT_NEAR(distance(blocks, exact), 0.03358935, 2e-8);
  const Rounded mx_rows = round(bench, a, {1, 32}), mx_weight = round(bench, b, {1, 32});
  EXPECT_EQ(mx_rows.code_sum, 5570250);
  EXPECT_EQ(mx_weight.code_sum, 22561025);
  EXPECT_EQ(exponents(mx_rows.largest), (std::vector<int>{2, 8, 8, 8, 8, 8, 8, 8, 9, 8, 8, 8, 8, 8, 8, 8}));
  EXPECT_NEAR(distance(product(mx_rows.values, mx_weight.values), exact), 0.03358932, 2e-8);
  const auto c = bench.zeros<float>(64, 256);
  linear<float>(bench.dev, Tensor2<const float>(rows.values), Tensor2<const float>(weight.values), Matrix<float>(c));
  EXPECT_LT(difference(values_of(c), blocks), 1e-6);  // sums in float
}

// Value of the format nearest to x, by the definition in double. Exact results are representable.
double nearest(double x, Format f) {
  if (std::isnan(x) || x == 0) return x;
  const int bits = f == Format::e4m3 ? 3 : 2, smallest = f == Format::e4m3 ? -6 : -14;
  const double size = std::min(std::abs(x), 2 * largest_value(f)), unit = std::ldexp(1.0, std::max(std::ilogb(size), smallest) - bits);
  return std::copysign(std::min(std::nearbyint(size / unit) * unit, largest_value(f)), x);
}

// Values over many orders of magnitude, with zeros, subnormal floats, outliers, and sometimes values that are not finite.
template <class T>
Values drawn_values(std::mt19937& random, Index n) {
  Values x = rounded<T>(random_values(n, random()));
  for (double& v : x) {
    const auto kind = random() % 40;
    if (kind == 0) v = 0;
    else if (kind == 1) v = double(T(float(std::ldexp(v, int(random() % 300) - 150))));
    else if (kind == 2 && random() % 50 == 0) v = random() % 2 ? INFINITY : NAN;
  }
  return x;
}

template <class T>
void expect_loops(std::mt19937& random, Fp8Block block, Format format) {
  const Index R = 1 + Index(random() % 300), C = 1 + Index(random() % 300);
  if (block.rows == 0) block = {R, C};
  const Values values = drawn_values<T>(random, R * C);
  Block<T> x(R, C, values, 3);
  Workbench bench;
  const auto largest = bench.zeros<float>(block.rows_of_blocks(R), block.columns_of_blocks(C));
  const auto codes = bench.zeros<T>(R, C), to = bench.zeros<T>(R, C);
  block_maxima<T>(bench.dev, x.template matrix<const T>(), block, largest);
  round_to_fp8<T>(bench.dev, x.template matrix<const T>(), format, block, largest, Fp8Form::codes, codes);
  round_to_fp8<T>(bench.dev, x.template matrix<const T>(), format, block, largest, Fp8Form::values, to);
  std::vector<float> most(largest.span(), 0);
  const auto block_of = [&](Index i) { return i / C / block.rows * Index(largest.extent(1)) + i % C / block.columns; };
  for (Index i = 0; i < R * C; ++i) most[block_of(i)] = std::max(most[block_of(i)], std::abs(float(values[i])));  // max() ignores NaN here
  int wrong = 0;
  for (std::size_t b = 0; b < most.size(); ++b) wrong += largest.data()[b] != most[b];
  for (Index i = 0; i < R * C; ++i) {
    const int e = fp8::scale_exponent(most[block_of(i)], format);
    const double exact = std::ldexp(nearest(std::ldexp(double(float(values[i])), e), format), -e), value = double(Acc<T>(to.data()[i]));
    const std::uint8_t code(int(float(Acc<T>(codes.data()[i]))));
    const float decoded = fp8::decode(code, format);
    const bool same = std::isnan(exact) ? std::isnan(value) && std::isnan(decoded)
                                        : (value == double(float(exact)) || std::abs(exact) < 0x1p-118) && decoded == float(std::ldexp(exact, e));
    wrong += !same;
  }
  EXPECT_EQ(wrong, 0) << R << " x " << C << ", blocks of " << block.rows << " x " << block.columns;
  const auto one = bench.zeros<float>(1);
  matrix_maximum<T>(bench.dev, x.template matrix<const T>(), one);
  EXPECT_EQ(one(0), *std::max_element(most.begin(), most.end()));
}

TEST(fp8, drawn_matrices_equal_plain_loops) {
  std::mt19937 random(seed_of_run());
  for (const Format format : formats)
    for (const Fp8Block& block : {Fp8Block{1, 128}, {128, 1}, {128, 128}, {1, 32}, {32, 1}, {0, 0}, {7, 5}}) {
      expect_loops<double>(random, block, format);
      expect_loops<float>(random, block, format);
      expect_loops<bf16>(random, block, format);
    }
}

}  // namespace
}  // namespace gyr::testing::fp8_suite
