// SPDX-License-Identifier: BSD-3-Clause
// Models of different precision in one process do not touch each other's numbers.
#include <memory>

#include "regression/cases.hpp"
#include "regression/testing.hpp"

namespace gyr::testing {
namespace {

// A model in training, whatever its scalars are.
class Trained {
 public:
  virtual ~Trained() = default;
  virtual double step(int number) = 0;  // its loss
  virtual ModelState& state() = 0;
};

template <class T>
class TrainedAs final : public Trained {
 public:
  TrainedAs(const Case& c) : case_(c), rig_(config(c), alone(c.model.layers())) {
    set_weights(rig_.engine);
    rig_.engine.reset_optimizer();
  }
  double step(int number) override {
    const auto source = [&](int i) { return micro_batch(Index(2 * number + i), case_.batch, case_.seq_length, case_.model.vocab_size); };
    return rig_.engine.train(source, 2, number, 1e-2).loss;
  }
  ModelState& state() override { return rig_.engine; }

 private:
  static EngineConfig config(const Case& c) {
    EngineConfig e;
    e.model = c.model;
    e.micro_batch_size = c.batch, e.seq_length = c.seq_length, e.micros = 2;
    return e;
  }
  const Case& case_;
  Rig<T> rig_;
};

std::unique_ptr<Trained> model(DType precision, const std::string& name) {
  return with_type(precision,
                   [&]<class T>(std::type_identity<T>) -> std::unique_ptr<Trained> { return std::make_unique<TrainedAs<T>>(named(name)); });
}

std::vector<std::byte> bytes_of(ModelState& state) {
  std::vector<std::byte> all;
  for (const auto& p : state.parameters())
    for (const Content content : {Content::weight, Content::gradient, Content::first_moment, Content::second_moment, Content::master})
      if (const AnyTensor x = state.tensor(*p, content)) {
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
  const auto m = model(precision, name);
  Outcome o;
  for (int i = 1; i <= steps; ++i) o.losses.push_back(m->step(i));
  o.state = bytes_of(m->state());
  return o;
}

TEST(several_models, of_different_precision_train_as_if_alone) {
  const std::pair<DType, std::string> models[] = {{DType::f64, "T2"}, {DType::bf16, "T5"}, {DType::f32, "T2"}, {DType::bf16, "T2"}};
  std::vector<Outcome> apart, together(std::size(models));
  std::vector<std::unique_ptr<Trained>> all;
  for (const auto& [precision, name] : models) {
    apart.push_back(by_itself(precision, name));
    all.push_back(model(precision, name));
  }
  for (int i = 1; i <= steps; ++i)
    for (std::size_t m = 0; m < all.size(); ++m) together[m].losses.push_back(all[m]->step(i));
  for (std::size_t m = 0; m < all.size(); ++m) {
    together[m].state = bytes_of(all[m]->state());
    EXPECT_EQ(all[m]->state().precision(), models[m].first);
    EXPECT_EQ(together[m].losses, apart[m].losses) << models[m].second << " in " << name_of(models[m].first);
    EXPECT_TRUE(together[m].state == apart[m].state) << models[m].second << " in " << name_of(models[m].first);
    for (std::size_t other = 0; other < m; ++other) EXPECT_NE(apart[m].losses, apart[other].losses) << "two models are one";
  }
}

// What a model is asked for through the interface is what it holds.
TEST(several_models, tell_what_they_hold_of_each_weight) {
  for (const DType precision : {DType::f64, DType::f32, DType::bf16}) {
    const auto m = model(precision, "T2");
    m->step(1);
    const DType wide = accumulator_of(precision);
    for (const auto& p : m->state().parameters()) {
      const bool narrow = precision != wide && p->weight.storage == Storage::narrow;
      EXPECT_EQ(m->state().tensor(*p, Content::weight).dtype, narrow ? precision : wide) << p->weight.name;
      EXPECT_EQ(bool(m->state().tensor(*p, Content::master)), narrow) << p->weight.name;
      for (const Content content : {Content::gradient, Content::first_moment, Content::second_moment}) {
        EXPECT_EQ(m->state().tensor(*p, content).dtype, wide) << p->weight.name;
        EXPECT_EQ(m->state().tensor(*p, content).size, p->size()) << p->weight.name;
      }
      EXPECT_FALSE(m->state().tensor(*p, Content::activation));
      EXPECT_EQ(m->state().updated(*p).dtype, wide) << p->weight.name;
    }
  }
}

}  // namespace
}  // namespace gyr::testing
