// SPDX-License-Identifier: BSD-3-Clause
// Weights that move between engines on different ranks get the bits that a checkpoint would give them, while the ranks
// compute. The communicator counts the bytes of the plan.
#include "src/parallel/mover.hpp"

#include <numeric>
#include <random>

#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/shared_folder.hpp"
#include "regression/support/state.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/engine/model/filling.hpp"

namespace gyr::testing::mover_suite {
namespace {

constexpr int world_ranks = 4;

WaitPolicy patience() {
  static const WaitPolicy policy = wait_policy_of(MPI_COMM_WORLD);
  return policy;
}

// Communicator of all ranks that counts moves.
Communicator& world() {
  static const auto made = [] {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return std::make_unique<Communicator>("moves", backend::device_transport(mpi_transport(comm, patience())));
  }();
  return *made;
}

// Grid of a layout on the ranks of a mesh; null on other ranks. Collective over all ranks.
std::unique_ptr<Grid> grid_on(const Mesh& mesh, const Layout& layout) {
  const WaitPolicy policy = patience();  // collective on its first call
  sync_ranks();
  MPI_Comm comm = communicator_of(mesh, MPI_COMM_WORLD);
  if (comm == MPI_COMM_NULL) return nullptr;
  auto grid = std::make_unique<Grid>(layout, comm, policy);
  MPI_Comm_free(&comm);
  return grid;
}

struct Side {
  DType precision;
  Layout layout;
  Mesh mesh;
};

EngineConfig config_of(const ModelConfig& model, DType precision) {
  EngineConfig config;
  config.model = model, config.precision = precision;
  config.seq_length = 16;
  return config;
}

PlacedWeights placed(const ModelConfig& model, const Side& side, bool masters) {
  return placed_weights(model, {side.precision, config_of(model, side.precision).optimizer.trained(), masters}, side.layout, side.mesh);
}

MoveSource source_of(Engine& engine) {
  return {engine.parameters(), [&engine](const Parameter& p, Content content) { return engine.tensor(p, content); }};
}

std::vector<std::byte> weights_of(const Engine& engine) {
  std::vector<std::byte> all;
  for (const auto& p : engine.parameters()) {
    const AnyTensor values = engine.tensor(*p, Content::weight).values;
    all.resize(all.size() + std::size_t(values.bytes()));
    copy_to_host(values, all.data() + all.size() - values.bytes());
  }
  return all;
}

// Bytes that this rank sends or receives according to the plan.
Index planned_bytes(const MovePlan& plan, bool sent) {
  Index sum = 0;
  for (const auto& [pair, bytes] : plan.bytes()) sum += (sent ? pair.first : pair.second) == world().rank() ? bytes : 0;
  return sum;
}

void expect_moved_as_loaded(const ModelConfig& model, const Side& from, const Side& to, Index bucket_bytes) {
  const SharedFolder folder;
  const auto from_grid = grid_on(from.mesh, from.layout), to_grid = grid_on(to.mesh, to.layout);
  std::optional<AnyRig> sender, receiver;
  std::vector<std::byte> loaded;
  if (from_grid) {
    sender.emplace(config_of(model, from.precision), *from_grid);
    set_state(sender->engine, 1);
    save_checkpoint(folder.path(), {}, sender->engine);
  }
  sync_ranks();
  if (to_grid) {
    receiver.emplace(config_of(model, to.precision), *to_grid);
    load_checkpoint(folder / "step_00000000", receiver->engine, LoadWhat::weights);
    loaded = weights_of(receiver->engine);
    set_state(receiver->engine, 2);
  }
  const MovePlan plan = moves(placed(model, from, true), placed(model, to, true), 2);
  world().clear_traffic();
  if (sender || receiver) {
    Mover mover(plan, world(), sender ? source_of(sender->engine) : MoveSource(),
                receiver ? MoveDestination{receiver->engine.parameters()} : MoveDestination(), bucket_bytes);
    mover.finish();
    EXPECT_LE(mover.buffer_bytes(), 4 * (bucket_bytes + 256));
  }
  EXPECT_TRUE(!receiver || weights_of(receiver->engine) == loaded);
  EXPECT_EQ(world().traffic(Operation::send).bytes, planned_bytes(plan, true));
  EXPECT_EQ(world().traffic(Operation::receive).bytes, planned_bytes(plan, false));
}

Layout drawn_layout(std::mt19937& random) {
  const std::vector<std::array<int, 4>> sizes{{1, 1, 1, 1}, {4, 1, 1, 1}, {2, 1, 1, 2}, {1, 2, 1, 2}, {2, 2, 1, 1},
                                              {1, 4, 1, 1}, {1, 1, 2, 2}, {1, 1, 1, 4}, {2, 1, 2, 1}, {1, 2, 1, 1}};
  const auto [data, pipeline, context, tensor] = sizes[random() % sizes.size()];
  Layout layout = layout_with_context(data, pipeline, context, tensor);
  if (data * context > 1) layout.expert = random() % 2 ? 2 : 1;
  return sharded(layout, Shard(random() % 4), random() % 2 ? 4096 : Index(32) << 20);
}

Side drawn_side(std::mt19937& random) {
  Side side{std::array{DType::f64, DType::f32, DType::bf16, DType::bf16}[random() % 4], drawn_layout(random), Mesh::of_all(world_ranks)};
  std::shuffle(side.mesh.ranks.begin(), side.mesh.ranks.end(), random);
  side.mesh.ranks.resize(std::size_t(side.layout.ranks()));
  std::sort(side.mesh.ranks.begin(), side.mesh.ranks.end());
  side.layout.permutation = Mesh::of_all(side.layout.ranks()).ranks;
  std::shuffle(side.layout.permutation.begin(), side.layout.permutation.end(), random);
  return side;
}

std::string text(const Side& s) { return fmt::format("{} on ranks {} in {}", s.layout.text(), s.mesh.text(), name_of(s.precision)); }

// T2 with experts has every kind of sharding, T5 a tied embedding. GYR_SEED selects other draws.
TEST(mover, executed_moves_equal_checkpoints) {
  std::mt19937 random(seed_of_run());
  ModelConfig experts = widened(named("T2")), tied = widened(named("T5"));
  experts.pattern = "PE*M-EPM", experts.moe.intermediate_size = 16, tied.pattern = "P*-MP*-M";
  for (int trial = 0; trial < 10; ++trial) {
    const Side from = drawn_side(random), to = drawn_side(random);
    SCOPED_TRACE(fmt::format("trial {}: {} to {}", trial, text(from), text(to)));
    expect_moved_as_loaded(trial % 2 ? tied : experts, from, to, trial % 3 ? 2000 : Index(32) << 20);
  }
  sync_ranks();
}

// Ranks 0 and 1 evaluate a model whose weights move to ranks 2 and 3 meanwhile.
TEST(mover, ranks_compute_while_weights_move) {
  const ModelConfig model = widened(named("T2"));
  const Side from{DType::f32, layout_of(2, 1, 1), {{0, 1}}}, to{DType::bf16, layout_of(1, 1, 2), {{2, 3}}};
  const auto from_grid = grid_on(from.mesh, from.layout), to_grid = grid_on(to.mesh, to.layout);
  const MovePlan plan = moves(placed(model, from, true), placed(model, to, false), 4);
  if (from_grid) {
    AnyRig sender(config_of(model, from.precision), *from_grid);
    const auto loss = [&] { return sender.engine.evaluate([&](int i) { return micro_batch(i, 1, 16, model.vocab_size); }, 1).first; };
    const double expected = loss();
    Mover mover(plan, world(), source_of(sender.engine), {}, 4096);
    for (int i = 0; i < 5; ++i) {
      mover.advance();
      EXPECT_EQ(loss(), expected);
    }
    mover.finish();
    EXPECT_TRUE(mover.advance());
  }
  if (to_grid) {
    AnyRig receiver(config_of(model, to.precision), *to_grid);
    const auto expected = weights_of(receiver.engine);
    set_state(receiver.engine, 2);
    Mover(plan, world(), {}, {receiver.engine.parameters()}, 4096).finish();
    EXPECT_TRUE(weights_of(receiver.engine) == expected);
  }
  sync_ranks();
}

std::vector<std::vector<Token>> generated(Generator& generator) {
  std::vector<std::vector<Token>> prompts;
  for (const Index length : {5, 1, 9}) prompts.push_back(micro_batch(Index(prompts.size()), 1, length, generator.stage().config().vocab_size).tokens);
  return texts_of(generator, prompts, Sampling{1, 0, 1, 7, 12}, [](Index, Token) { return false; });
}

// From a training engine with ZeRO-3 on all ranks to generators on ranks 1 and 3, as stored and in int8.
TEST(mover, generator_on_other_ranks_uses_moved_weights) {
  const ModelConfig model = widened(named("T2"));
  const Side training{DType::f64, sharded(layout_of(2, 2, 1), Shard::weights), {{0, 1, 2, 3}}};
  const Side generating{DType::f64, layout_of(1, 1, 2), {{1, 3}}};
  const auto from_grid = grid_on(training.mesh, training.layout), to_grid = grid_on(generating.mesh, generating.layout);
  AnyRig sender(config_of(model, training.precision), *from_grid);
  for (const Factors factors : {Factors::stored, Factors::int8}) {
    const PlacedWeights to = placed_weights(model, {generating.precision, {}, false, factors}, generating.layout, generating.mesh);
    const MovePlan plan = moves(placed(model, training, true), to, 2);
    if (!to_grid) {
      Mover(plan, world(), source_of(sender.engine), {}).finish();
      continue;
    }
    const GeneratorCapacity capacity{2, 9, 12, factors};
    Generator moved(model, generating.precision, *to_grid, capacity), assigned(model, generating.precision, *to_grid, capacity);
    {
      Filling filling(moved.stage().parameters());
      Mover(plan, world(), source_of(sender.engine), {filling.weights(), filling.arrived()}).finish();
    }
    Device device(false, 0);
    assigned.stage().fill([&](ParameterList weights, const Arrived& arrived) {
      for (const auto& p : weights) {
        assign(device, *p, WeightValues(p->weight));
        arrived(*p);
      }
    });
    EXPECT_EQ(generated(moved), generated(assigned));
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::mover_suite
