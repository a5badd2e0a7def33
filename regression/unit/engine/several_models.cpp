// SPDX-License-Identifier: BSD-3-Clause
// Models of different precision in one process do not change each other's data.
#include <memory>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::several_models_suite {
namespace {

constexpr int micros = 2;

EngineConfig config_of(DType precision, const Case& c) {
  EngineConfig e;
  e.model = c.model, e.precision = precision;
  e.micro_batch_size = c.batch, e.seq_length = c.seq_length, e.micros = micros;
  return e;
}

// A model that is trained step by step.
struct Model : AnyRig {
  Model(DType precision, const std::string& name, const Arena* working = nullptr)
      : AnyRig(config_of(precision, named(name)), single_rank_grid(named(name).model.layers()), working), c(named(name)) {}
  double step(int number) {
    const auto source = [&](int i) { return micro_batch(Index(2 * number + i), c.batch, c.seq_length, c.model.vocab_size); };
    return engine.train(source, micros, number, 1e-2).loss;
  }
  const Case& c;
};

std::vector<std::byte> bytes_of(const ModelState& state) {
  std::vector<std::byte> all;
  for (const auto& p : state.parameters())
    for (const Content content :
         {Content::weight, Content::gradient, Content::state("first_moment"), Content::state("second_moment"), Content::master})
      if (const AnyTensor x = state.tensor(*p, content).values) {
        all.resize(all.size() + std::size_t(x.bytes()));
        copy_to_host(x, all.data() + all.size() - x.bytes());
      }
  return all;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<std::byte> state;
  bool operator==(const Outcome&) const = default;
};

constexpr int steps = 3;

Outcome by_itself(DType precision, const std::string& name) {
  Model m(precision, name);
  Outcome o;
  for (int i = 1; i <= steps; ++i) o.losses.push_back(m.step(i));
  o.state = bytes_of(m.engine);
  return o;
}

// Trains several models alternately, each with its own working memory or all with `working`. The results must equal
// those of separate training.
void expect_independent_training(const Arena* working) {
  const std::pair<DType, std::string> models[] = {{DType::f64, "T2"}, {DType::bf16, "T5"}, {DType::f32, "T2"}, {DType::bf16, "T2"}};
  std::vector<Outcome> separate, joint(std::size(models));
  std::vector<std::unique_ptr<Model>> all;
  for (const auto& [precision, name] : models) {
    separate.push_back(by_itself(precision, name));
    all.push_back(std::make_unique<Model>(precision, name, working));
  }
  for (int i = 1; i <= steps; ++i)
    for (std::size_t m = 0; m < all.size(); ++m) joint[m].losses.push_back(all[m]->step(i));
  for (std::size_t m = 0; m < all.size(); ++m) {
    joint[m].state = bytes_of(all[m]->engine);
    EXPECT_EQ(all[m]->engine.precision(), models[m].first);
    EXPECT_EQ(joint[m].losses, separate[m].losses) << models[m].second << " in " << name_of(models[m].first);
    EXPECT_TRUE(joint[m].state == separate[m].state) << models[m].second << " in " << name_of(models[m].first);
    for (std::size_t other = 0; other < m; ++other) EXPECT_NE(separate[m].losses, separate[other].losses) << "two models have the same losses";
  }
}

TEST(several_models, models_of_different_precision_train_independently) { expect_independent_training(nullptr); }

TEST(several_models, models_can_share_working_memory) {
  const Arena working(Memory::activations, Model(DType::f64, "T2").capacity.working());
  expect_independent_training(&working);
  const Arena little(Memory::activations, 256);
  EXPECT_EQ(error_of([&] { Model(DType::f64, "T2", &little); }).code, Exit::internal);
}

// The state reports for each weight the data types and sizes of the tensors that the model holds.
TEST(several_models, state_reports_dtype_and_size_per_weight) {
  for (const DType precision : {DType::f64, DType::f32, DType::bf16}) {
    Model m(precision, "T2");
    m.step(1);
    const ModelState& state = m.engine;
    const DType wide = accumulator_of(precision);
    for (const auto& p : state.parameters()) {
      const bool narrow = precision != wide && p->weight.storage != Storage::wide;
      EXPECT_EQ(state.tensor(*p, Content::weight).values.dtype, narrow ? precision : wide) << p->weight.name;
      EXPECT_EQ(bool(state.tensor(*p, Content::master)), narrow) << p->weight.name;
      for (const Content content : {Content::gradient, Content::state("first_moment"), Content::state("second_moment")}) {
        EXPECT_EQ(state.tensor(*p, content).values.dtype, wide) << p->weight.name;
        EXPECT_EQ(state.tensor(*p, content).values.size, p->size()) << p->weight.name;
      }
      EXPECT_FALSE(state.tensor(*p, Content::activation));
      EXPECT_EQ(state.updated(*p).values.dtype, wide) << p->weight.name;
    }
  }
}

}  // namespace
}  // namespace gyr::testing::several_models_suite
