// SPDX-License-Identifier: BSD-3-Clause
// Gradients that are reduced in bf16: on two ranks, the result has the bits of rounding each rank's sum to bf16, adding
// both, and rounding again.
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::reduce_dtype_suite {
namespace {

constexpr Index seq_length = 6;

MicroBatch of_replica(int replica, const ModelConfig& model) { return micro_batch(replica, 1, seq_length, model.vocab_size); }

EngineConfig config_of(const ModelConfig& model, std::optional<DType> reduce_dtype) {
  EngineConfig c;
  c.model = model, c.seq_length = seq_length, c.reduce_dtype = reduce_dtype;
  return c;
}

// A replica's own gradients of the mean over both replicas. They are half of those of its own mean, because both have
// equally many labels.
template <class T>
std::map<std::string, std::vector<double>> local_gradients(const ModelConfig& model, int replica) {
  Rig<T> rig(config_of(model, {}), single_rank_grid(model.layers()));
  rig.engine.gradients([&](int) { return of_replica(replica, model); }, 1, 1);
  auto gradients = gathered_gradients(rig.engine);
  for (auto& [name, values] : gradients)
    for (double& x : values) x /= 2;
  return gradients;
}

double rounded(double x) { return double(float(bf16(float(x)))); }

template <class T>
void expect_rounded_on_two_ranks(const std::string& name) {
  const ModelConfig model = widened(named(name));
  const auto first = local_gradients<T>(model, 0), second = local_gradients<T>(model, 1);
  for (const Shard level : {Shard::none, Shard::optimizer, Shard::gradients, Shard::weights})
    for (const Index bucket_bytes : {Index(1), Index(1) << 30}) {
      Grid* const grid = grid_of(sharded(layout_of(2, 1, 1), level, bucket_bytes));
      if (!grid) continue;
      Rig<T> rig(config_of(model, DType::bf16), *grid);
      rig.engine.gradients([&](int) { return of_replica(grid->coordinate(Axis::data), model); }, 1, 1);
      for (const auto& [weight, values] : gathered_gradients(rig.engine))
        for (std::size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(values[i], rounded(rounded(first.at(weight)[i]) + rounded(second.at(weight)[i])))
              << name << ", sharded " << name_of(level) << ", buckets of " << bucket_bytes << ": " << weight << " " << i;
    }
  sync_ranks();
}

TEST(reduce_dtype, local_and_total_float_gradients_are_rounded) { expect_rounded_on_two_ranks<float>("T5"); }
TEST(reduce_dtype, local_and_total_bf16_gradients_are_rounded) { expect_rounded_on_two_ranks<bf16>("T2"); }

// A single rank has no other rank to send to.
TEST(reduce_dtype, single_rank_rounds_nothing) {
  const ModelConfig model = widened(named("T2"));
  Rig<float> plain(config_of(model, {}), single_rank_grid(model.layers())), narrow(config_of(model, DType::bf16), single_rank_grid(model.layers()));
  for (Rig<float>* rig : {&plain, &narrow}) rig->engine.gradients([&](int) { return of_replica(0, model); }, 1, 1);
  EXPECT_EQ(gathered_gradients(plain.engine), gathered_gradients(narrow.engine));
  EXPECT_EQ(plain.engine.measured().bytes(Memory::gradients), narrow.engine.measured().bytes(Memory::gradients));
}

}  // namespace
}  // namespace gyr::testing::reduce_dtype_suite
