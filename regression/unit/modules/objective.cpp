// SPDX-License-Identifier: BSD-3-Clause
// Objectives: selection in a deck, and a custom objective that is defined and registered only in this file and trains
// with the unchanged engine.
#include "modules/objectives/objective.hpp"

#include <algorithm>

#include "kernels/ops/sum.hpp"
#include "modules/objectives/classes.hpp"
#include "modules/objectives/masking.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr::testing::objective_suite {
namespace {

// Head of a reward model, on the host and for one rank: y(r) = w . x(r) for the last row r of each sequence, with loss
// (y - label)^2 / 2.
template <class T>
class RewardHead final : public Head {
 public:
  RewardHead(const ModelConfig& c, Parameters& p)
      : Head(p.declare({"lm_head.weight", {1, c.hidden_size}, replicated(), normal(c.init_std), Storage::wide})) {}

  void loss(Pass& a, Frame&, const AnyTensor2& x, const Labels& labels, Tensor1<double> sum, ObjectiveScores* row_scores) override {
    score(a, x.as<const T>(), labels.of_rows, sum, [&](Index, double error) {
      if (row_scores) row_scores->rows.push_back({error * error / 2, 0});
    });
  }
  void loss_and_gradient(Pass& a, Frame& frame, const AnyTensor2& stream, const Labels& labels, Tensor1<const double> scales,
                         Tensor1<double> sum) override {
    const auto x = stream.as<const T>();
    const auto dx = frame.put(gradient, x.extent(0), x.extent(1));
    fill<T>(a.dev, flat(dx), 0);
    const auto w = w_.vector<const Acc<T>>();
    const auto dw = w_.vector_gradient<Acc<T>>();
    const double scale = a.dev.dry_run() ? 0 : scales(0);
    score(a, x, labels.of_rows, sum, [&](Index r, double error) {
      for (Index d = 0; d < Index(x.extent(1)); ++d) {
        dx(r, d) = T(Acc<T>(scale * error * double(w(d))));
        dw(d) += Acc<T>(scale * error * double(x(r, d)));
      }
    });
  }
  void backward(Pass& a, Frame& frame, const AnyTensor2& dx) override { convert(a.dev, frame.get(gradient), dx); }
  void predict(Pass&, Frame&, const AnyTensor2& x, const AnyTensor2& y) override {
    for (Index r = 0; r < x.rows; ++r) y.as<Acc<T>>()(r, 0) = Acc<T>(value(x.as<const T>(), r));
  }

 private:
  static constexpr Key<Tensor2<T>> gradient{"gradient of reward"};
  double value(Tensor2<const T> x, Index r) const {
    const auto w = w_.vector<const Acc<T>>();
    double y = 0;
    for (Index d = 0; d < Index(x.extent(1)); ++d) y += double(w(d)) * double(x(r, d));
    return y;
  }
  template <class Each>
  void score(Pass& a, Tensor2<const T> x, Tensor1<const Token> labels, Tensor1<double> sum, const Each& each) {
    for (Index r = 0; !a.dev.dry_run() && r < Index(x.extent(0)); ++r) {
      const double error = labels(r) == ignored_label ? 0 : value(x, r) - double(labels(r));
      sum(0) += error * error / 2;
      if (labels(r) != ignored_label) each(r, error);
    }
  }
};

class Reward final : public Objective {
 public:
  const char* name() const override { return "last_row"; }
  Labelled label(const SampleView& s) const override {
    Labelled l{{s.tokens.begin(), s.tokens.end() - 1}, std::vector<Token>(s.tokens.size() - 1, ignored_label)};
    l.labels.back() = Token(s.number % 2);
    return l;
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter*, Parameters& p) const override { return make_typed<Head, RewardHead>(p.dtype(), c, p); }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size); }
};

const RegisteredObjective here({"last_row", "scalar reward of each sequence (test only)",
                                [](Section&, const ModelConfig&, const Objective&) -> std::shared_ptr<const Objective> {
                                  return std::make_shared<Reward>();
                                }});

// A micro-batch that is labelled by the objective.
MicroBatch labelled(const Objective& objective, const Case& c, Index first) {
  MicroBatch m{c.batch, c.seq_length, {}, {}};
  for (Index b = 0; b < c.batch; ++b) {
    std::vector<Token> tokens = micro_batch(first + b, 1, c.seq_length, c.model.vocab_size).tokens;
    tokens.push_back(0);
    const Labelled l = objective.label({tokens, std::vector<std::uint8_t>(tokens.size(), 1), {}, first + b, c.model.vocab_size});
    m.tokens.insert(m.tokens.end(), l.tokens.begin(), l.tokens.end());
    m.labels.insert(m.labels.end(), l.labels.begin(), l.labels.end());
  }
  return m;
}

EngineConfig rewarded(const Case& c) {
  EngineConfig e;
  e.model = c.model;
  e.model.tie_word_embeddings = false;
  Deck deck = Deck::parse("train: {objective: last_row}", "run.yaml");
  e.model.objective = read_run_config(deck).model.objective;
  e.micro_batch_size = c.batch, e.seq_length = c.seq_length;
  return e;
}

TEST(objective, custom_objective_trains_with_unchanged_engine) {
  const Case& c = named("T2");
  Rig<double> rig(rewarded(c), single_rank_grid(c.model.layers()));
  rig.engine.initialise(7);
  const auto source = [&](int i) { return labelled(*rig.engine.config().model.objective, c, i * c.batch); };
  const double before = rig.engine.gradients(source, 1, 1).loss;
  StepResult last;
  for (int step = 1; step <= 20; ++step) last = rig.engine.train(source, 1, step, 1e-2);
  EXPECT_EQ(last.tokens, c.batch) << "one label per sequence";
  EXPECT_LT(last.loss, before / 4);
  const auto scores = rig.engine.scores(source, 1);
  double sum = 0;
  for (const RowScore& s : scores.at(0).rows) sum += s.loss;
  EXPECT_NEAR(sum, rig.engine.evaluate(source, 1).first, 1e-12);
}

TEST(objective, custom_objective_gradient_matches_finite_differences) {
  const Case& c = named("T2");
  Rig<double> rig(rewarded(c), single_rank_grid(c.model.layers()));
  rig.engine.initialise(7);
  const auto source = [&](int i) { return labelled(*rig.engine.config().model.objective, c, i * c.batch); };
  const auto loss = [&] { return rig.engine.evaluate(source, 1).first / double(c.batch); };
  rig.engine.gradients(source, 1, 1);
  expect_differences(rig.engine, loss);
}

// For objectives that score rows. The gradients of these loss terms are tested in cross_entropy.cpp.
TEST(objective, optional_loss_terms_affect_only_training) {
  const Case& c = named("T3");
  for (const auto& objective :
       {next_token(), masked_tokens({.fraction = 1, .mask_token = 1}), tag(numbered_classes(3)), classify(numbered_classes(4))}) {
    SCOPED_TRACE(objective->name());
    const auto losses = [&](const LossTerms& terms) {
      EngineConfig config;
      config.model = c.model, config.model.objective = objective, config.model.loss_terms = terms, config.precision = DType::f64;
      config.model.tie_word_embeddings = false;
      config.micro_batch_size = c.batch, config.seq_length = c.seq_length;
      AnyRig rig(config, single_rank_grid(c.model.layers()));
      const Index classes = Index(objective->classes().size());
      const auto source = [&](int) { return micro_batch(0, c.batch, c.seq_length, classes > 0 ? classes : c.model.vocab_size); };
      const double measured = rig.engine.evaluate(source, 1).first;
      return std::pair(measured, rig.engine.gradients(source, 1, 1).loss);
    };
    const auto plain = losses({}), smooth = losses({0.2, 0}), steep = losses({0, 0.01}), diverse = losses({0, 0, 0, 0.1});
    EXPECT_EQ(smooth.first, plain.first);
    EXPECT_EQ(steep.first, plain.first);
    EXPECT_EQ(diverse.first, plain.first);
    EXPECT_LT(diverse.second, plain.second - 1e-3);
    EXPECT_GT(std::abs(smooth.second - plain.second), 1e-5);
    EXPECT_GT(steep.second, plain.second + 1e-3);
  }
}

TEST(objective, deck_selects_a_registered_objective) {
  Deck deck = Deck::parse("train: {objective: next_token}", "run.yaml");
  EXPECT_EQ(read_run_config(deck).model.objective, next_token());
  const auto declared = deck.settings();
  const auto key = std::find_if(declared.begin(), declared.end(), [](const Declaration& d) { return d.path == "train.objective"; });
  ASSERT_NE(key, declared.end());
  EXPECT_EQ(key->fallback, "next_token");
  for (const ObjectiveType& type : objective_types()) {
    EXPECT_NE(key->range().find(type.name), std::string::npos) << type.name;
    EXPECT_NE(key->help.find(type.help), std::string::npos) << type.name;
  }
  Deck wrong = Deck::parse("train: {objective: next_tokens}", "run.yaml");
  try {
    read_run_config(wrong);
    ADD_FAILURE() << "next_tokens was accepted as an objective";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::config);
    for (const char* part :
         {"run.yaml:1", "train.objective = next_tokens", "allowed: classify | last_row | mlm | mtp | next_token", "did you mean `next_token`?"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in " << error.what();
  }
}

}  // namespace
}  // namespace gyr::testing::objective_suite
