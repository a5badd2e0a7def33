// SPDX-License-Identifier: BSD-3-Clause
// Grouped GEMM on tensor cores (wgmma and mma), with n and k large enough that blocks reuse their tile buffers, on
// checked machines.
#include "regression/support/grouped.hpp"

#include <random>

#include "kernels/ops/sum.hpp"
#include "regression/cuda/machines.hpp"
#include "regression/support/cases.hpp"

namespace gyr::testing::grouped_suite {

using namespace gyr::cuda;

namespace {

void expect_gemms(std::mt19937_64& random, Machine machine, int capability) {
  const auto among = [&](Index least, Index most) { return least + Index(random() % std::uint64_t(most - least + 1)); };
  gyr::testing::GroupedCase c{{among(1, 60), 0, among(257, 300), among(65, 128)}, 8 * among(33, 36), 8 * among(33, 36), 100};
  std::shuffle(c.rows.begin(), c.rows.end(), random);
  SCOPED_TRACE(fmt::format("order {}, capability {}", int(machine.order), capability));
  machine.capability = capability;
  const With with(machine);
  gyr::testing::expect_bf16_follows_double(c);
}

}  // namespace

TEST(warpgroups, grouped_gemm_matches_double_reference) {
  std::mt19937_64 random(seed_of_draws());
  for (const Machine& machine : machines_of_every_order)
    if (machine.checked) expect_gemms(random, machine, 90);
}

TEST(tensor_cores, grouped_gemm_matches_double_reference) {
  std::mt19937_64 random(seed_of_draws());
  expect_gemms(random, {Order::random, 1, true}, 80);
}

// The number of host reads of device memory in a step does not depend on the number of expert layers, nor on expert
// biases.
TEST(tensor_cores, expert_layers_add_no_host_reads) {
  const auto reads = [](const char* pattern) {
    EngineConfig config;
    config.model = gyr::testing::named("T2").model;
    config.model.pattern = pattern, config.model.moe.experts = 4, config.model.moe.routing.top_k = 2, config.model.moe.intermediate_size = 16;
    config.model.moe.expert_bias = true;
    config.micro_batch_size = 2, config.seq_length = 16, config.micros = 2, config.precision = DType::bf16;
    gyr::testing::AnyRig rig(config, gyr::testing::single_rank_grid(config.model.layers()));
    rig.engine.train([&](int i) { return gyr::testing::micro_batch(2 * i, 2, 16, config.model.vocab_size); }, 2, 1, 1e-3);
    Index calls = 0;
    for (const Work& w : rig.engine.device().work())
      if (w.kernel == std::string(to_host_work)) calls += w.calls;
    return calls;
  };
  const With with(Machine{Order::forward, 1, false});
  const Index of_one = reads("E");
  EXPECT_LE(of_one, 2) << "loss sums and expert loads";
  EXPECT_EQ(reads("EE"), of_one);
}

}  // namespace gyr::testing::grouped_suite
