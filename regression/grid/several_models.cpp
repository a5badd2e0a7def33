// SPDX-License-Identifier: BSD-3-Clause
// Several models in one process, trained or only scoring, each on a mesh and a layout of its own. They share one block of working
// memory and run in turns. Each has the bits that it has alone, and the values of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "src/parallel/mesh.hpp"

namespace gyr::testing::several_models_suite {
namespace {

constexpr int ranks = 8, micros_of_all = 8, steps = 2;

struct Member {
  Mesh mesh;
  Layout layout;
  EngineConfig config;
};

Mesh drawn_mesh(int size, std::mt19937& random) {
  Mesh mesh = Mesh::of_all(ranks);
  std::shuffle(mesh.ranks.begin(), mesh.ranks.end(), random);
  mesh.ranks.resize(std::size_t(size));
  std::sort(mesh.ranks.begin(), mesh.ranks.end());
  return mesh;
}

Member drawn_member(bool trained, std::mt19937& random) {
  const std::vector<Layout> layouts = layouts_of_four_layers();
  Member m{{}, layouts[random() % layouts.size()], {}};
  m.mesh = drawn_mesh(m.layout.ranks(), random);
  m.config.model = named("T2").model;
  m.config.model.pattern = random() % 2 == 0 ? "*P--" : "P*-M";
  m.config.model.vocab_size = 23 + Index(random() % 20);
  m.config.model.attention.num_heads = 8, m.config.model.attention.num_kv_heads = 4, m.config.model.attention.head_dim = 4;
  m.config.model.mamba.num_heads = 8, m.config.model.mlp.intermediate_size = 16;
  m.config.precision = DType::f64;
  m.config.micro_batch_size = 1, m.config.seq_length = 48 + Index(random() % 8);
  m.config.training = trained;
  return m;
}

EngineConfig config_on(const Member& m, const Layout& layout) {
  EngineConfig config = m.config;
  config.micros = micros_of_all / layout.size(Axis::data);
  if (Index(layout.stages.size()) > layout.size(Axis::pipeline)) config.schedule = interleaved;
  return config;
}

// Losses of all steps, and the weights after the last one.
struct Course {
  std::vector<double> losses;
  NamedTensors weights;
};

void advance(Engine& engine, int step, Course& course) {
  const EngineConfig& c = engine.config();
  const MicroBatches batches = [&](int i) {
    return micro_batch(micros_of_all * step + first_sample(c.micro_batch_size, i, engine.grid()), c.micro_batch_size, c.seq_length,
                       c.model.vocab_size);
  };
  if (c.training) {
    course.losses.push_back(engine.train(batches, c.micros, step + 1, 1e-2).loss);
  } else {
    const auto [sum, tokens] = engine.evaluate(batches, c.micros);
    course.losses.push_back(sum / double(tokens));
  }
}

Course course_of(Engine& engine) {
  Course course;
  for (int step = 0; step < steps; ++step) advance(engine, step, course);
  if (engine.config().training) course.weights = gathered(engine, Content::weight);
  return course;
}

// The member on this rank; without a grid if the rank is not in its mesh.
struct Held {
  std::unique_ptr<Grid> grid;
  std::unique_ptr<AnyRig> rig;
  Course together, alone;
};

std::unique_ptr<Grid> grid_on(const Member& m) {
  static const WaitPolicy patience = wait_policy_of(MPI_COMM_WORLD);
  MPI_Comm comm = communicator_of(m.mesh, MPI_COMM_WORLD);
  if (comm == MPI_COMM_NULL) return nullptr;
  auto grid = std::make_unique<Grid>(m.layout, comm, patience);
  MPI_Comm_free(&comm);
  return grid;
}

// Runs all members in turns, in one block of working memory.
void run_together(const std::vector<Member>& members, std::vector<Held>& held) {
  Index most = 0;
  for (std::size_t i = 0; i < members.size(); ++i)
    if (held[i].grid)
      most = std::max(most, predicted_capacity(config_on(members[i], members[i].layout), members[i].layout, held[i].grid->position()).working());
  const Arena working(Memory::activations, most);
  for (std::size_t i = 0; i < members.size(); ++i)
    if (held[i].grid) held[i].rig = std::make_unique<AnyRig>(config_on(members[i], members[i].layout), *held[i].grid, &working);
  for (int step = 0; step < steps; ++step)
    for (Held& h : held)
      if (h.rig) advance(h.rig->engine, step, h.together);
  for (Held& h : held)
    if (h.rig && h.rig->engine.config().training) h.together.weights = gathered(h.rig->engine, Content::weight);
  for (Held& h : held) h.rig.reset();
}

void expect_near(const Course& found, const Course& expected, const std::string& where) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < found.losses.size(); ++i) EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-11) << where << ", step " << i + 1;
  expect_same_gradients(found.weights, expected.weights, 1e-10, where);
}

TEST(several_models, equal_each_model_alone_and_one_rank) {
  std::mt19937 random(seed_of_run());
  int overlaps = 0;
  for (int draw = 0; draw < 4; ++draw) {
    std::vector<Member> members{drawn_member(true, random), drawn_member(draw % 2 == 0, random), drawn_member(false, random)};
    std::vector<Held> held(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) held[i].grid = grid_on(members[i]);
    run_together(members, held);
    overlaps += std::count_if(held.begin(), held.end(), [](const Held& h) { return h.grid != nullptr; }) > 1;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!held[i].grid) continue;
      AnyRig alone(config_on(members[i], members[i].layout), *held[i].grid);
      held[i].alone = course_of(alone.engine);
      Grid& one = single_rank_grid(4);
      AnyRig single(config_on(members[i], one.layout()), one);
      const std::string where = fmt::format("draw {}, model {} on ranks {}: {}", draw, i, members[i].mesh.text(), members[i].layout.text());
      EXPECT_EQ(held[i].together.losses, held[i].alone.losses) << where;
      EXPECT_EQ(held[i].together.weights, held[i].alone.weights) << where;
      expect_near(held[i].together, course_of(single.engine), where);
    }
    sync_ranks();
  }
  int most = 0;
  MPI_Allreduce(&overlaps, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  EXPECT_GT(most, 0) << "no rank held several models";
}

}  // namespace
}  // namespace gyr::testing::several_models_suite
