// SPDX-License-Identifier: BSD-3-Clause
// Classification heads: losses, predicted classes and gradients equal those of plain loops. Also: positions of labels
// for each pooling mode, and decks that name or count the classes.
#include "modules/objectives/classes.hpp"

#include <algorithm>
#include <cmath>

#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/generate/generator.hpp"

namespace gyr::testing::classes_suite {
namespace {

constexpr Index sequences = 2, length = 14;

ModelConfig model_of(std::shared_ptr<const Objective> objective, bool post_norm = true) {
  ModelConfig m = named("T2").model;
  m.pattern = "*-";
  m.attention.causal = false, m.norm_placement = post_norm ? NormPlacement::after : NormPlacement::before, m.norm = NormType::layer;
  m.tie_word_embeddings = false;
  m.objective = std::move(objective);
  return m;
}

EngineConfig config_of(const ModelConfig& m) {
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = sequences, c.seq_length = length;
  return c;
}

MicroBatch batch_of(const ModelConfig& m, bool documents = false) {
  MicroBatch batch = micro_batch(0, sequences, length, m.vocab_size);
  if (documents) batch = packed(batch, {5, 1, 6, 11});
  for (std::size_t r = 0; r < batch.labels.size(); ++r)
    batch.labels[r] = r % 3 == 1 ? ignored_label : Token(batch.tokens[r] % Token(m.objective->classes().size()));
  return batch;
}

std::vector<std::shared_ptr<const Objective>> objectives() {
  return {classify(numbered_classes(3)), classify(numbered_classes(2), Pool::last), classify(numbered_classes(4), Pool::mean),
          tag(numbered_classes(5)), tag({"no", "yes"})};
}
// Heads with a transform layer before the classifier matrix. Each part of the transform has tests of its own.
std::vector<std::shared_ptr<const Objective>> transformed() {
  return {classify(numbered_classes(3), Pool::mean, ClassFront::transform), classify(numbered_classes(2), Pool::last, ClassFront::transform_no_bias),
          tag(numbered_classes(5), ClassFront::transform_no_bias), tag({"no", "yes"}, ClassFront::transform)};
}

// Values of a weight of the model, by name, row by row.
class Weights {
 public:
  explicit Weights(Engine& engine) : engine_(engine) {}
  Tensor1<double> operator()(const std::string& name) const {
    for (const auto& p : engine_.stage().parameters().all())
      if (p->weight.name == name) return p->vector<double>();
    throw std::logic_error("no weight " + name);
  }

 private:
  Engine& engine_;
};

// Input of the classification head for a batch: the hidden states after the last layer.
std::vector<double> stream_of(Engine& engine, const MicroBatch& batch) {
  Stage& stage = engine.stage();
  Slot& slot = stage.slot(0, 0);
  slot.clear();
  stage.chunk(0).begin(engine.device(), slot, {batch.batch, batch.seq_length, 0, {}}, batch);
  Pass pass = stage.pass(engine.device(), slot);
  stage.chunk(0).run_through(pass, slot);
  const auto x = slot.stream.x().as<const double>();
  std::vector<double> stream(x.data(), x.data() + x.size());
  slot.clear();
  return stream;
}

// y(r, o) = b(o) + sum over d of x(r, d) w(o, d)
std::vector<double> linear(const std::vector<double>& x, Tensor1<double> w, Tensor1<double> b, Index width) {
  std::vector<double> y;
  for (Index r = 0; r < Index(x.size()) / width; ++r)
    for (Index o = 0; o < Index(b.size()); ++o) {
      double sum = b(o);
      for (Index d = 0; d < width; ++d) sum += x[r * width + d] * w(o * width + d);
      y.push_back(sum);
    }
  return y;
}

// For every row, the mean over all rows of its document.
std::vector<double> document_means(const std::vector<double>& x, const MicroBatch& batch, Index width) {
  // a document is identified by its first row, or by its sequence
  const auto text_of = [&](Index r) { return batch.positions.empty() ? r / length : r - batch.positions[r]; };
  std::vector<double> y(x.size(), 0);
  for (Index r = 0; r < sequences * length; ++r)
    for (Index d = 0; d < width; ++d) {
      double sum = 0, count = 0;
      for (Index s = 0; s < sequences * length; ++s)
        if (text_of(s) == text_of(r)) sum += x[s * width + d], count += 1;
      y[r * width + d] = sum / count;
    }
  return y;
}

void expect_plain_loops(const std::shared_ptr<const Objective>& objective, bool documents) {
  const ModelConfig m = model_of(objective);
  const Index classes = Index(objective->classes().size());
  Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
  set_weights(rig.engine);
  const MicroBatch batch = batch_of(m, documents);
  const Weights weight(rig.engine);
  std::vector<double> h = stream_of(rig.engine, batch);
  if (const auto pool = pool_of(*objective)) {
    if (pool == Pool::mean) h = document_means(h, batch, m.hidden_size);
    h = linear(h, weight("pooler.dense.weight"), weight("pooler.dense.bias"), m.hidden_size);
    for (double& x : h) x = std::tanh(x);
  }
  const std::vector<double> logits = linear(h, weight("classifier.weight"), weight("classifier.bias"), m.hidden_size);
  const auto scores = rig.engine.scores([&](int) { return batch; }, 1).at(0).rows;
  ASSERT_EQ(Index(scores.size()), sequences * length);
  double all = 0;
  for (Index r = 0; r < sequences * length; ++r) {
    if (batch.labels[r] == ignored_label) continue;
    const double *const l = logits.data() + r * classes, *const top = std::max_element(l, l + classes);
    double sum = 0;
    for (Index c = 0; c < classes; ++c) sum += std::exp(l[c]);
    const double loss = std::log(sum) - l[batch.labels[r]];
    EXPECT_NEAR(scores[r].loss, loss, 1e-13);
    EXPECT_NEAR(scores[r].shortfall, *top - l[batch.labels[r]], 1e-13);
    EXPECT_EQ(scores[r].likeliest, top - l) << "row " << r;
    all += loss;
  }
  EXPECT_NEAR(rig.engine.evaluate([&](int) { return batch; }, 1).first, all, 1e-11);
}

TEST(classes, losses_and_predictions_match_reference_loops) {
  for (const auto& objective : objectives())
    for (const bool documents : {false, true}) expect_plain_loops(objective, documents);
}

TEST(classes, gradients_equal_finite_differences) {
  auto all = objectives();
  for (const auto& objective : transformed()) all.push_back(objective);
  for (const auto& objective : all)
    for (const bool post_norm : {true, false}) {
      const ModelConfig m = model_of(objective, post_norm);
      SCOPED_TRACE(objective->name());
      Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
      set_weights(rig.engine);
      expect_differences_of(rig.engine, batch_of(m, post_norm));
    }
}

TEST(classes, zero_classifier_loss_is_log_of_class_count) {
  for (const auto& objective : objectives()) {
    const ModelConfig m = model_of(objective);
    Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
    set_weights(rig.engine);
    for (const char* name : {"classifier.weight", "classifier.bias"}) {
      const auto w = Weights(rig.engine)(name);
      std::fill_n(w.data(), w.size(), 0.0);
    }
    const auto scores = rig.engine.scores([&](int) { return batch_of(m); }, 1);
    for (const RowScore& row : scores.at(0).rows) {
      EXPECT_EQ(row.likeliest, 0);
      EXPECT_NEAR(row.loss, row.loss == 0 ? 0 : std::log(double(objective->classes().size())), 1e-14);
    }
  }
}

TEST(classes, label_position_follows_pooling_mode) {
  constexpr Token no = ignored_label;
  const std::vector<Token> tokens{1, 2, 3, 4, 5, 6, 7, 8, 0}, given{2, no, no, 1, no, 0, no, no, no};
  const std::vector<std::int32_t> positions{0, 1, 2, 0, 1, 0, 0, 1, 2};  // documents of 3, 2 and 1 tokens, then padding
  const std::vector<std::uint8_t> learned(tokens.size(), 1);
  const SampleView sample{tokens, learned, {}, 0, 20, positions, given};
  const std::vector<Token> read{1, 2, 3, 4, 5, 6, 7, 8};
  const Labelled first = classify(numbered_classes(3))->label(sample), last = classify(numbered_classes(3), Pool::last)->label(sample);
  EXPECT_EQ(first.tokens, read);
  EXPECT_EQ(first.labels, (std::vector<Token>{2, no, no, 1, no, 0, no, no}));
  EXPECT_EQ(classify(numbered_classes(3), Pool::mean)->label(sample).labels, first.labels);
  EXPECT_EQ(last.tokens, read);
  EXPECT_EQ(last.labels, (std::vector<Token>{no, no, 2, no, 1, 0, no, no}));
  EXPECT_EQ(tag(numbered_classes(3))->label(sample).labels, first.labels);
}

TEST(classes, deck_gives_class_names_or_count) {
  const auto objective_of = [](const std::string& train, const RunDefaults& defaults = {}) {
    Deck deck = Deck::parse("train: {" + train + "}", "run.yaml");
    return read_run_config(deck, defaults).model.objective;
  };
  EXPECT_EQ(objective_of("objective: classify, classify: {labels: [bad, good]}")->classes(), (std::vector<std::string>{"bad", "good"}));
  EXPECT_EQ(objective_of("objective: tag, tag: {num_labels: 2}")->classes(), (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  RunDefaults before;
  before.model.objective = tag({"O", "B", "I"});
  EXPECT_EQ(objective_of("seed: 1", before)->classes(), before.model.objective->classes());
  EXPECT_EQ(objective_of("tag: {num_labels: 4}", before)->classes(), numbered_classes(4));
  for (const char* train : {"objective: tag, tag: {num_labels: 2}", "objective: classify, classify: {labels: [bad, good], pool: last}"}) {
    Deck deck = Deck::parse(std::string("train: {") + train + "}", "run.yaml");
    const auto classes = read_run_config(deck).model.objective->classes();
    Deck effective = Deck::parse(deck.effective(), "effective");
    EXPECT_EQ(read_run_config(effective).model.objective->classes(), classes) << train;
  }
  const auto message = [&](const std::string& train) { return std::string(error_of([&] { objective_of(train); }).what()); };
  EXPECT_NE(message("objective: classify").find("train.classify.num_labels"), std::string::npos);
  EXPECT_NE(message("objective: tag, tag: {labels: [a]}").find("there are 1 classes"), std::string::npos);
  EXPECT_NE(message("objective: tag, tag: {labels: [a, b], num_labels: 3}").find("0 or 2, the number of labels"), std::string::npos);
  EXPECT_NE(message("objective: tag, tag: {labels: [a, b, a]}").find("names that differ"), std::string::npos);
}

TEST(classes, generator_refuses_classification_model) {
  ModelConfig m = model_of(tag(numbered_classes(3)));
  m.attention.causal = true;
  const Error error = error_of([&] { Generator(m, DType::f32, single_rank_grid(2), {1, {4}, 2}); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("train.objective = tag"), std::string::npos) << error.what();
}

// With a classifier in place of the output head, the embedding has no matrix to share.
TEST(classes, classifier_is_not_tied_to_embedding) {
  Deck deck = Deck::parse("model: {tie_word_embeddings: true}\ntrain: {objective: tag, tag: {num_labels: 2}}", "run.yaml");
  EXPECT_FALSE(read_run_config(deck).model.tie_word_embeddings);
}

}  // namespace
}  // namespace gyr::testing::classes_suite
