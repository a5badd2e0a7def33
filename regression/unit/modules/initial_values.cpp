// SPDX-License-Identifier: BSD-3-Clause
// Initial values of weights: range, mean and standard deviation of every kind of weight in every layer type, as in the
// papers and in other programs.
#include <cmath>

#include "kernels/ops/convolution.hpp"
#include "modules/model/layer.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::initial_values_suite {
namespace {

constexpr double init_std = 0.02, dt_low = 1e-3, dt_high = 0.1;
constexpr Index conv_kernel = 4;

// A model wide enough for a thousand values of each kind of weight.
ModelConfig model_of(const std::string& pattern) {
  ModelConfig m;
  m.pattern = pattern;
  m.vocab_size = 200, m.hidden_size = 64, m.init_std = init_std;
  m.attention = {.num_heads = 8, .num_kv_heads = 2, .head_dim = 8, .rope_theta = 1e4, .bias = true};
  m.moe.experts = 16;
  m.mamba.num_heads = 1024, m.mamba.head_dim = 2, m.mamba.num_groups = 2, m.mamba.state_size = 8, m.mamba.conv_kernel = conv_kernel,
  m.mamba.chunk_size = 8;
  m.mamba.norm = SsmNorm::gate_first;
  m.delta = {.num_heads = 1024, .num_key_heads = 2, .head_dim = 2, .key_dim = 8, .conv_kernel = conv_kernel, .chunk_size = 8};
  m.short_conv.kernel = largest_conv_kernel;  // enough values of its few channels
  m.mamba.in_bias = m.mamba.out_bias = true;
  m.mamba.dt_init_low = dt_low, m.mamba.dt_init_high = dt_high;
  m.mlp = {.intermediate_size = 96, .bias = true};
  return m;
}

// Distribution of a weight's initial values: constant, or uniform or normal after applying `shape`.
struct Law {
  enum { same, uniform, normal } kind;
  double low = 0, high = 0;  // constant value | range | mean and standard deviation
  double (*shape)(double) = [](double x) { return x; };
};

// Expected distribution by the weight's name only, independent of what the modules declare.
Law law_of(const std::string& name) {
  const auto is = [&](const char* end) { return name.ends_with(end); };
  const bool is_short = name.find(".conv.") != std::string::npos;
  const double bound = 1 / std::sqrt(double(is_short ? largest_conv_kernel : conv_kernel));
  if (is("conv1d.weight") || is("conv1d.bias")) return {Law::uniform, -bound, bound};    // as in PyTorch's convolutions
  if (is(".A_log")) return {Law::uniform, 1, 16, [](double x) { return std::exp(x); }};  // as in Mamba-2
  if (is(".dt_bias")) return {Law::uniform, std::log(dt_low), std::log(dt_high), [](double x) { return std::log(std::log1p(std::exp(x))); }};
  if (is(".D") || is("norm.weight")) return {Law::same, 1, 1};
  if (is(".bias")) return {Law::same, 0, 0};
  return {Law::normal, 0, init_std};
}

// Mean and standard deviation must be within five of their own standard errors. Uniform values must nearly fill their
// range. Normal values must have the tails of a normal distribution.
void expect_law(const std::vector<double>& raw, const Law& law, const std::string& name) {
  std::vector<double> x;
  for (const double value : raw) x.push_back(law.shape(value));
  if (law.kind == Law::same) {
    for (const double value : x) ASSERT_EQ(value, law.low) << name;
    return;
  }
  const double n = double(x.size());
  ASSERT_GE(n, 1000) << name;
  double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
  const bool uniform = law.kind == Law::uniform;
  const double range = law.high - law.low, mean = uniform ? (law.low + law.high) / 2 : law.low, spread = uniform ? range / std::sqrt(12.0) : law.high;
  for (const double value : x) sum += value, squares += (value - mean) * (value - mean), low = std::min(low, value), high = std::max(high, value);
  EXPECT_NEAR(sum / n, mean, 5 * spread / std::sqrt(n)) << name;
  EXPECT_NEAR(std::sqrt(squares / n), spread, 5 * spread * std::sqrt((uniform ? 0.2 : 0.5) / n)) << name;
  if (uniform) {
    const double rounding = 1e-9 * range;
    EXPECT_TRUE(low >= law.low - rounding && low < law.low + 20 * range / n) << name << " has minimum " << low;
    EXPECT_TRUE(high <= law.high + rounding && high > law.high - 20 * range / n) << name << " has maximum " << high;
  } else {
    double beyond = 0;
    for (const double value : x) beyond += std::abs(value) > 2 * spread;
    EXPECT_NEAR(beyond / n, 0.0455, 5 * std::sqrt(0.0455 / n)) << name << ": fraction of values beyond two standard deviations";
    EXPECT_GT(high, 2.5 * spread) << name << " has truncated tails";
    EXPECT_LT(high, 7 * spread) << name;
  }
}

std::map<std::string, std::vector<double>> drawn(const ModelConfig& model, std::uint64_t seed) {
  EngineConfig config;
  config.model = model;
  config.seq_length = 8, config.source_length = has_encoder(model) ? 8 : 0;
  Rig<double> rig(config, single_rank_grid(model.layers()));
  rig.engine.initialise(seed);
  std::map<std::string, std::vector<double>> all;
  for (const auto& p : rig.engine.stage().parameters().all()) {
    const auto v = p->vector<double>();
    all[p->weight.name] = {v.data(), v.data() + p->size()};
  }
  return all;
}

TEST(initial_values, follow_their_distributions_in_every_layer_type) {
  for (const LayerType& type : layer_types()) {
    for (const auto& [name, values] : drawn(model_of(of_encoder_and_decoder(type) ? "*>X" : std::string(2, type.symbol)), 3))
      expect_law(values, law_of(name), type.name + (" " + name));
  }
}

// The RMSNorms of rows and of heads (qk_norm) scale by weight + norm_offset, which is 1 at first. The gated norm of
// Mamba-2 has no offset.
TEST(initial_values, norm_weights_start_at_one_minus_norm_offset) {
  ModelConfig m = model_of("PW");
  m.norm_offset = 0.75, m.norm_placement = NormPlacement::both, m.attention.qk_norm = true;
  for (const auto& [name, values] : drawn(m, 3)) {
    if (!name.ends_with("norm.weight")) continue;
    for (const double value : values) ASSERT_EQ(value, name.ends_with(".mamba.norm.weight") ? 1 : 0.25) << name;
  }
}

// Weights of equal shape in different layers, or with another seed, have independent values: their correlation is
// within five standard errors of zero.
TEST(initial_values, differ_by_weight_name_and_seed) {
  const ModelConfig model = model_of("PP");
  const auto one = drawn(model, 3), other = drawn(model, 4);
  const auto correlation = [](const std::vector<double>& a, const std::vector<double>& b) {
    double ab = 0, aa = 0, bb = 0, ma = 0, mb = 0;
    for (std::size_t i = 0; i < a.size(); ++i) ma += a[i] / double(a.size()), mb += b[i] / double(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) ab += (a[i] - ma) * (b[i] - mb), aa += (a[i] - ma) * (a[i] - ma), bb += (b[i] - mb) * (b[i] - mb);
    return ab / std::sqrt(aa * bb);
  };
  for (const auto& [name, values] : one) {
    if (law_of(name).kind == Law::same) continue;
    const double chance = 5 / std::sqrt(double(values.size()));
    EXPECT_LT(std::abs(correlation(values, other.at(name))), chance) << name << " correlates with the values of another seed";
    if (const auto at = name.find("layers.0."); at != std::string::npos) {
      std::string above = name;
      above[at + 7] = '1';
      EXPECT_LT(std::abs(correlation(values, one.at(above))), chance) << name << " correlates with the same weight of the next layer";
    }
  }
}

}  // namespace
}  // namespace gyr::testing::initial_values_suite
