// SPDX-License-Identifier: BSD-3-Clause
// Objective mlm (masked language modelling): masked tokens are predicted from the tokens on both sides. BERT's head: a
// linear layer, an activation and a norm, followed by an output matrix with a bias. The linear layer is not sharded:
// every tensor-parallel rank computes it for its own rows of the residual stream. With sentence-order prediction there
// is a second head, BERT's pooler and a matrix of two classes, for which only the first tokens of documents have
// labels.
#include <cmath>

#include "modules/layers/embedding.hpp"
#include "modules/layers/transform.hpp"
#include "modules/objectives/masking.hpp"
#include "modules/objectives/sentence_order.hpp"
#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

namespace {

// BERT's pooler, applied to every row: tanh(h w' + b).
template <class T>
class Pooler : public Dense<T> {
 public:
  Pooler(const ModelConfig& c, Parameters& parameters) : Dense<T>(c, "pooler.dense", Activation::tanh, parameters) {}
};

template <class T>
using OrderHead = FrontedHead<T, Pooler>;

// Layers before the output matrix, and the sentence-order head, which reads the same normed rows.
template <class T>
class MaskedTokensFront {
 public:
  MaskedTokensFront(const ModelConfig& c, Parameters& parameters)
      : last_(c, parameters), transform_(c, "lm_head", masking_of(*c.objective)->head_bias, parameters) {
    if (c.objective->predicts_sentence_order()) order_ = std::make_unique<OrderHead<T>>(c, output_of_order, parameters);
  }

  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> x) {
    const auto h = last_.forward(a, frame, x);
    frame.refer(normed, h);
    return transform_.forward(a, frame, h);
  }
  // Call after forward(). Scores of sentence-order prediction, without a gradient.
  void score_order(Pass& a, Frame& frame, Tensor1<const Token> labels, std::vector<RowScore>& rows) {
    Scope scope(a.dev.scratch);
    const auto unused = a.scratch<double>("sentence-order loss", Index(1));
    fill<double>(a.dev, unused, 0);
    ObjectiveScores scores;
    order_->loss(a, frame.nested(1, "order"), frame.get(normed), {labels}, unused, &scores);
    rows = std::move(scores.rows);
  }
  // Call after forward(). Loss of sentence-order prediction, and its gradient with respect to the normed rows.
  void order_loss_and_gradient(Pass& a, Frame& frame, Tensor1<const Token> labels, Tensor1<const double> scale, Tensor1<double> sum) {
    order_->loss_and_gradient(a, frame.nested(1, "order"), frame.get(normed), {labels}, scale, sum);
  }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dx) {
    Scope scope(a.dev.scratch);
    const auto dh = a.scratch<T>("gradient of normed rows", Index(dx.extent(0)), Index(dx.extent(1)));
    transform_.backward(a, frame, dy, dh);
    if (order_) add_order(a, frame, dh);
    last_.backward(a, frame, dh, dx);
  }

 private:
  void add_order(Pass& a, Frame& frame, Tensor2<T> dh) {
    Scope scope(a.dev.scratch);
    const auto more = a.scratch<T>("gradient of normed rows, sentence order", Index(dh.extent(0)), Index(dh.extent(1)));
    order_->backward(a, frame.nested(1), more);
    add<T>(a.dev, flat(more), flat(dh));
  }

  static constexpr Key<Tensor2<T>> normed{"normed rows of both heads"};
  FinalNorm<T> last_;
  Transform<T> transform_;
  std::unique_ptr<OrderHead<T>> order_;
};

template <class T>
class MaskedTokensHead final : public FrontedHead<T, MaskedTokensFront> {
 public:
  using Base = FrontedHead<T, MaskedTokensFront>;
  using Base::Base;

  void loss(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<double> sum, ObjectiveScores* scores) override {
    Base::loss(a, frame, x, labels, sum, scores);
    if (const auto* const order = labels.values.find(order_labels); scores && order) this->front().score_order(a, frame, *order, scores->order);
  }
  void loss_and_gradient(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<const double> scales,
                         Tensor1<double> sums) override {
    Base::loss_and_gradient(a, frame, x, labels, rows(scales, 0, 1), rows(sums, 0, 1));
    if (const auto* const order = labels.values.find(order_labels))
      this->front().order_loss_and_gradient(a, frame, *order, rows(scales, 1, 1), rows(sums, 1, 1));
  }
};

class MaskedTokens final : public Objective {
 public:
  explicit MaskedTokens(const Masking& masking = {}) : masking_(masking) {}
  const char* name() const override { return "mlm"; }
  bool repeats() const override { return !masking_.sentence_order; }
  Labelled label(const SampleView&) const override;
  std::vector<Figure> figures(const ObjectiveScores& scores) const override {
    std::vector<Figure> all{accuracy_of_rows("accuracy", scores.rows)};
    if (masking_.sentence_order) all.push_back(accuracy_of_rows("order accuracy", scores.order));
    return all;
  }
  bool predicts_sentence_order() const override { return masking_.sentence_order; }
  std::vector<NamedField> fields(const ModelConfig& c, Index) const override {
    std::vector<NamedField> all;
    if (reads_types(c)) all.push_back(ValueField<Token>{token_types, 0, 0, 0, ValueReader::embedding});
    if (masking_.sentence_order) all.push_back(ValueField<Token>{order_labels, ignored_label});
    return all;
  }
  std::vector<LossSum> losses() const override {
    return masking_.sentence_order ? std::vector<LossSum>{{}, {order_labels}} : std::vector<LossSum>{{}};
  }
  void check_model(const ModelConfig& c) const override {
    require(
        !masking_.sentence_order || !c.attention.causal, Exit::config,
        "train.mlm.sentence_order: the first token of a document predicts the order of its halves and has to see both; set model.attention.causal to "
        "false");
  }
  Index most_labels(Index seq_length) const override { return std::max<Index>(1, std::llround(masking_.fraction * double(seq_length))); }
  double scored() const override { return masking_.fraction; }
  const Masking& masking() const { return masking_; }
  bool needs_word_starts() const override { return true; }
  void check_training(const ModelConfig& c) const override {
    require(masking_.mask_token >= 0 && masking_.mask_token < c.vocab_size, Exit::config,
            "train.mlm.mask_token = {}: masked language modelling needs the id of the mask token, one of the {} tokens of model.vocab_size (eval: "
            "--mask-token)",
            masking_.mask_token, c.vocab_size);
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    Output output = output_of_tokens(c, table);
    output.bias = true;
    return make_typed<Head, MaskedTokensHead>(parameters.dtype(), c, output, parameters);
  }
  double flops(const ModelConfig& c) const override {
    const double order = masking_.sentence_order ? double(c.hidden_size + output_of_order.columns) : 0;
    return 2.0 * double(c.hidden_size) * (scored() * double(c.vocab_size) + double(c.hidden_size) + order);
  }

 private:
  Masking masking_;
};

// The halves are swapped before tokens are masked.
Labelled MaskedTokens::label(const SampleView& s) const {
  if (!masking_.sentence_order) return mask_tokens(masking_, s);
  OrderedHalves halves = order_halves(masking_.seed, s);
  SampleView swapped = s;
  swapped.tokens = halves.tokens, swapped.learned = halves.learned, swapped.begins = halves.begins;
  Labelled l = mask_tokens(masking_, swapped);
  l.values[token_types] = std::move(halves.types), l.values[order_labels] = std::move(halves.order);
  return l;
}

std::shared_ptr<const Objective> read_masked_tokens(Section& train, const ModelConfig&, const Objective& otherwise) {
  Section& s = train.section("mlm", "masked language modelling");
  Masking m;
  if (const Masking* const before = masking_of(otherwise))
    m.head_bias = before->head_bias, m.sentence_order = before->sentence_order, m.mask_token = before->mask_token;
  m.mask_token = s.get("mask_token", m.mask_token,
                       "id of the mask token (mask_token_id), by default that of the model folder's tokenizer; -1: unknown, and training is refused")
                     .at_least(-1)
                     .at_most(most_tokens);
  m.fraction = s.get("share", m.fraction, "fraction of a sample's tokens that are masked (mlm_probability)").positive().at_most(1);
  m.max_ngram =
      s.get("max_ngram", m.max_ngram, "maximum number of neighbouring words masked together; n words with a probability proportional to 1/n")
          .positive()
          .at_most(64);
  m.head_bias = s.get("head_bias", m.head_bias, "bias of the linear layer before the output matrix").effect(Effect::function);
  m.sentence_order =
      s.get("sentence_order", m.sentence_order,
            "sentence-order prediction (ALBERT): each document's first token also predicts whether its halves are in order or swapped ("
            "BERT's pooler and two classes); tokens of the second half have token type 1 if model.type_vocab_size is at least 2")
          .effect(Effect::function);
  m.seed = std::uint64_t(Index(s.get("seed", Index(m.seed), "seed of the masks and of the order of the halves").at_least(0)));
  return masked_tokens(m);
}

const RegisteredObjective registered_masked_tokens({"mlm", "masked language modelling, of whole words if data.tokenizer is given",
                                                    read_masked_tokens});

}  // namespace

const Masking* masking_of(const Objective& objective) {
  const auto* const masked = dynamic_cast<const MaskedTokens*>(&objective);
  return masked ? &masked->masking() : nullptr;
}
std::shared_ptr<const Objective> masked_tokens(const Masking& masking) { return std::make_shared<const MaskedTokens>(masking); }

}  // namespace gyr
