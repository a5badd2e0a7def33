// SPDX-License-Identifier: BSD-3-Clause
// Activation checkpointing and offloading. The gradients have the same bits whatever the forward keeps for the backward
// and wherever it keeps it. The policy determines which kernels are recomputed and how much memory this saves.
#include "src/engine/config/recompute.hpp"

#include <array>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::recompute_suite {
namespace {

constexpr int micros = 2;

struct Policy {
  const char* name;
  // Times that the forward runs each kind of kernel of a layer: elementwise passes and convolution, GEMMs, and
  // attention or SSD.
  Index passes, gemms, mixing;
};
constexpr Policy policies[] = {{"none", 1, 1, 1}, {"selective", 2, 1, 1}, {"attention_output", 2, 2, 1}, {"full", 2, 2, 2}};

struct Step {
  StepResult result;
  std::vector<std::byte> gradients;
  std::map<std::string, Index> calls;  // calls per kernel name
  Index activations, host;
  double flops;
};

Step step(const Case& c, const std::string& pattern, DType precision, const RecomputeConfig& recompute, const OffloadConfig& offload = {}) {
  EngineConfig config;
  config.model = c.model, config.model.pattern = pattern, config.precision = precision;
  config.micro_batch_size = c.batch, config.seq_length = c.seq_length, config.micros = micros;
  config.recompute = recompute, config.offload = offload;
  AnyRig rig(config, single_rank_grid(Index(pattern.size())));
  rig.engine.device().clear_work();
  const auto source = [&](int i) { return micro_batch(Index(i), c.batch, c.seq_length, c.model.vocab_size); };
  Step s{rig.engine.gradients(source, micros, 1), {}, {}, rig.capacity.bytes(Memory::activations), rig.capacity.host(), rig.engine.device().flops()};
  const AnyTensor gradients = rig.engine.stage().parameters().gradients();
  s.gradients.resize(std::size_t(gradients.bytes()));
  copy_to_host(gradients, s.gradients.data());
  for (const Work& work : rig.engine.device().work()) s.calls[work.kernel] += work.calls;
  return s;
}

Step step(const Case& c, const std::string& pattern, DType precision, const char* policy) {
  return step(c, pattern, precision, RecomputeConfig{recompute_of(policy)});
}

void expect_same_bits(const Step& a, const Step& b) {
  EXPECT_EQ(a.result.loss, b.result.loss);
  EXPECT_EQ(a.result.gradient_norm, b.result.gradient_norm);
  EXPECT_TRUE(a.gradients == b.gradients);
}

class recompute : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(T, recompute, ::testing::Values("T1", "T2", "T3", "T4", "T5", "T6"), [](const auto& info) { return info.param; });

TEST_P(recompute, recomputation_keeps_every_gradient_bit) {
  for (const char* pattern : {"PPP", "M*-P", "-", "*", "M", "E", "B"})
    for (const DType precision : {DType::f64, DType::f32, DType::bf16}) {
      const Step kept = step(named(GetParam()), pattern, precision, "none");
      for (const Policy& policy : policies) {
        SCOPED_TRACE(fmt::format("{} {} {}", pattern, name_of(precision), policy.name));
        expect_same_bits(kept, step(named(GetParam()), pattern, precision, policy.name));
      }
    }
}

TEST_P(recompute, recomputing_some_layer_types_keeps_every_gradient_bit) {
  const Step kept = step(named(GetParam()), "PM*-P", DType::f32, "none");
  RecomputeConfig config{recompute_of("selective")};
  config.by_type = {{'P', recompute_of("full")}, {'*', recompute_of("none")}, {'-', recompute_of("attention_output")}};
  const Step again = step(named(GetParam()), "PM*-P", DType::f32, config);
  expect_same_bits(kept, again);
  // '*' runs once per micro-batch, each of the two 'P' layers twice
  EXPECT_EQ(again.calls.at("attention"), kept.calls.at("attention") / 3 * (1 + 2 * 2));
  EXPECT_EQ(again.calls.at("ssd"), kept.calls.at("ssd") / 3 * (1 + 2 * 2));  // 'M' runs once, each of the two 'P' layers twice
  EXPECT_EQ(again.calls.at("glu"), kept.calls.at("glu") / 3 * (2 + 2 * 2));
}

TEST(recompute, policy_determines_which_kernels_are_recomputed) {
  const Case& c = named("T3");
  const Index layers = 3;
  const Step kept = step(c, std::string(layers, 'P'), DType::f32, "none");
  const auto times = [&](const Step& s, const char* kernel) { return double(s.calls.at(kernel)) / double(kept.calls.at(kernel)); };
  Index before = 0;
  for (const Policy& policy : policies) {
    SCOPED_TRACE(policy.name);
    const Step s = step(c, std::string(layers, 'P'), DType::f32, policy.name);
    EXPECT_EQ(times(s, "attention"), policy.mixing);
    EXPECT_EQ(times(s, "ssd"), policy.mixing);
    EXPECT_EQ(times(s, "convolution"), policy.passes);
    EXPECT_EQ(times(s, "glu"), policy.passes);
    EXPECT_EQ(s.calls.at("rmsnorm"), micros * (2 * layers * policy.passes + 1));  // plus the norm before the LM head
    EXPECT_EQ(times(s, "rope"), double(policy.gemms + 1) / 2);                    // the backward rotates once
    EXPECT_TRUE(before == 0 || s.activations < before) << s.activations;
    before = s.activations;
  }
}

// Agreement up to rounding: a GEMM over some of the rows need not have the bits of a GEMM over all rows. That depends
// on the BLAS library.
void expect_same_values(const Step& a, const Step& b, DType precision) {
  const double within = precision == DType::f64 ? 1e-12 : precision == DType::f32 ? 1e-5 : 1e-2;
  EXPECT_EQ(a.result.loss, b.result.loss);
  EXPECT_NEAR(a.result.gradient_norm, b.result.gradient_norm, within * a.result.gradient_norm);
}

// A case with enough rows that each tested fraction alpha is a nonzero number of rows.
Case long_case(const std::string& name) {
  Case c = named(name);
  c.batch = 2, c.seq_length = 140;
  return c;
}

TEST_P(recompute, offloading_activations_keeps_loss_and_gradients) {
  const Case c = long_case(GetParam());
  int rotation = 0;  // rotates the policies, so that every pattern and every precision is tested with every policy
  for (const char* pattern : {"PPPP", "M*-PM*", "-E*E-", "LWB-M"})
    for (const DType precision : {DType::f64, DType::f32, DType::bf16}) {
      const Step kept = step(c, pattern, precision, "none");
      const char* const policy = std::array{"none", "selective", "full"}[std::size_t(rotation % 3 + rotation / 3) % 3];
      ++rotation;
      for (const double alpha : {1.0, 0.5, 0.25, 0.0}) {
        SCOPED_TRACE(fmt::format("{} {} {} {}", pattern, name_of(precision), policy, alpha));
        const Step offloaded = step(c, pattern, precision, {recompute_of(policy)}, {true, alpha});
        if (alpha == 0 || alpha == 1) expect_same_bits(kept, offloaded);
        else expect_same_values(kept, offloaded, precision);
      }
    }
}

TEST(recompute, offloading_limits_device_memory_to_few_layers) {
  const Case c = long_case("T3");
  const auto memory = [&](int layers, const OffloadConfig& offload) { return step(c, std::string(layers, 'P'), DType::f32, {}, offload); };
  const Step few = memory(4, {true, 1}), many = memory(9, {true, 1}), kept = memory(9, {});
  EXPECT_NEAR(double(many.activations) / double(few.activations), 1, 0.05);  // the tolerance covers gaps between allocations
  EXPECT_LT(many.activations, kept.activations / 2);
  EXPECT_EQ(kept.host, 0);
  EXPECT_EQ(many.host, few.host / 2 * 7);  // the last two layers stay on the device
  const auto bytes = [](const Step& s, const char* kernel) { return s.calls.count(kernel) ? s.calls.at(kernel) : 0; };
  EXPECT_EQ(bytes(many, "copy to host"), 7 * micros);
  EXPECT_EQ(bytes(many, "copy from host"), 7 * micros);
  Index before = many.host;
  for (const double alpha : {0.5, 0.25, 0.0}) {
    const Step s = memory(9, {true, alpha});
    EXPECT_LT(s.host, before) << alpha;
    before = s.host;
  }
}

TEST(recompute, offloading_to_file_keeps_bits_and_cleans_up) {
  const Folder folder;
  const Case c = long_case("T3");
  expect_same_bits(step(c, "PPPP", DType::f32, "none"), step(c, "PPPP", DType::f32, {}, {true, 1, folder.path().string()}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const std::string nowhere = (folder.path() / "nowhere").string();
  const Error error = error_of([&] { step(c, "PPPP", DType::f32, {}, {true, 1, nowhere}); });
  EXPECT_EQ(error.code, Exit::io);
  EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos) << error.what();
}

TEST(recompute, unknown_recompute_policy_is_refused) {
  EXPECT_EQ(recompute_of("none"), std::nullopt);
  EXPECT_EQ(error_of([] { recompute_of("everything"); }).code, Exit::internal);
}

}  // namespace
}  // namespace gyr::testing::recompute_suite
