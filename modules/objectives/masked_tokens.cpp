// SPDX-License-Identifier: BSD-3-Clause
// Masked tokens, which are found again from what stands on both sides: BERT's head, a linear layer, an activation and a norm in front of the output
// matrix with a bias. The layer in front is not sharded: every rank of the tensor axis has it for the rows of the stream that it keeps. Beside it
// stands, where that is asked for, what tells whether the halves of a text are in their order: BERT's pooler and a matrix of two classes, of which
// first tokens alone have labels.
#include <cmath>

#include "modules/layers/transform.hpp"
#include "modules/objectives/masking.hpp"
#include "modules/objectives/sentence_order.hpp"
#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

namespace {

// tanh(h w' + b) of every row.
template <class T>
class Pooler : public Dense<T> {
 public:
  Pooler(const ModelConfig& c, Parameters& parameters) : Dense<T>(c, "pooler.dense", Activation::tanh, parameters) {}
};

template <class T>
using OrderHead = FrontedHead<T, Pooler>;

// What the matrix reads of the stream; and what reads the same norm beside it.
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
  // Behind the forward: how the order is told, without a loss.
  void score_order(Pass& a, Frame& frame, Tensor1<const Token> labels, std::vector<RowScore>& rows) {
    Scope scope(a.dev.scratch);
    const auto unused = a.scratch<double>("loss of the order", Index(1));
    fill<double>(a.dev, unused, 0);
    ObjectiveScores said;
    order_->loss(a, frame.nested(1, "order"), frame.get(normed), {labels}, unused, &said);
    rows = std::move(said.rows);
  }
  // Behind the forward: the loss of the order, and its gradient as far as the norm.
  void order_loss_and_gradient(Pass& a, Frame& frame, Tensor1<const Token> labels, Tensor1<const double> scale, Tensor1<double> sum) {
    order_->loss_and_gradient(a, frame.nested(1, "order"), frame.get(normed), {labels}, scale, sum);
  }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dx) {
    Scope scope(a.dev.scratch);
    const auto dh = a.scratch<T>("gradient of linear", Index(dx.extent(0)), Index(dx.extent(1)));
    transform_.backward(a, frame, dy, dh);
    if (order_) add_order(a, frame, dh);
    last_.backward(a, frame, dh, dx);
  }

 private:
  void add_order(Pass& a, Frame& frame, Tensor2<T> dh) {
    Scope scope(a.dev.scratch);
    const auto more = a.scratch<T>("gradient of the order", Index(dh.extent(0)), Index(dh.extent(1)));
    order_->backward(a, frame.nested(1), more);
    add<T>(a.dev, flat(more), flat(dh));
  }

  static constexpr Key<Tensor2<T>> normed{"normed for both heads"};
  FinalNorm<T> last_;
  Transform<T> transform_;
  std::unique_ptr<OrderHead<T>> order_;
};

template <class T>
class MaskedTokensHead final : public FrontedHead<T, MaskedTokensFront> {
 public:
  using Base = FrontedHead<T, MaskedTokensFront>;
  using Base::Base;

  void loss(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<double> sum, ObjectiveScores* said) override {
    Base::loss(a, frame, x, labels, sum, said);
    if (said && !labels.ahead.empty()) this->front().score_order(a, frame, labels.ahead[0].labels, said->order);
  }
  void loss_and_gradient(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<const double> scales,
                         Tensor1<double> sums) override {
    Base::loss_and_gradient(a, frame, x, labels, rows(scales, 0, 1), rows(sums, 0, 1));
    if (labels.ahead.empty()) return;
    this->front().order_loss_and_gradient(a, frame, labels.ahead[0].labels, rows(scales, 1, 1), rows(sums, 1, 1));
  }
};

class MaskedTokens final : public Objective {
 public:
  explicit MaskedTokens(const Masking& masking = {}) : masking_(masking) {}
  const char* name() const override { return "mlm"; }
  bool repeats() const override { return !masking_.sentence_order; }
  Labelled label(const SampleView&) const override;
  std::vector<Figure> figures(const ObjectiveScores& said) const override {
    std::vector<Figure> all{accuracy_of_rows("accuracy", said.rows)};
    if (masking_.sentence_order) all.push_back(accuracy_of_rows("order accuracy", said.order));
    return all;
  }
  bool predicts_sentence_order() const override { return masking_.sentence_order; }
  double ahead_weight() const override { return 1; }
  void check_model(const ModelConfig& c) const override {
    require(!masking_.sentence_order || !c.attention.causal, Exit::config,
            "train.mlm.sentence_order: the first token of a text tells the order of its halves and has to see them: set model.attention.causal to "
            "false");
  }
  Index most_labels(Index seq_length) const override { return std::max<Index>(1, std::llround(masking_.share * double(seq_length))); }
  double scored() const override { return masking_.share; }
  const Masking& masking() const { return masking_; }
  bool needs_word_starts() const override { return true; }
  void check_training(const ModelConfig& c) const override {
    require(
        masking_.mask_token >= 0 && masking_.mask_token < c.vocab_size, Exit::config,
        "train.mlm.mask_token = {}: masked tokens need the id of the token that hides them, one of the {} of model.vocab_size (eval: --mask-token)",
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

// Halves change places before tokens are hidden.
Labelled MaskedTokens::label(const SampleView& s) const {
  if (!masking_.sentence_order) return mask_tokens(masking_, s);
  OrderedHalves halves = order_halves(masking_.seed, s);
  SampleView turned = s;
  turned.tokens = halves.tokens, turned.learned = halves.learned, turned.begins = halves.begins;
  Labelled l = mask_tokens(masking_, turned);
  l.types = std::move(halves.types), l.order = std::move(halves.order);
  return l;
}

std::shared_ptr<const Objective> read_masked_tokens(Section& train, const ModelConfig&, const Objective& otherwise) {
  Section& s = train.section("mlm", "masked tokens");
  Masking m;
  if (const Masking* const before = masking_of(otherwise))
    m.head_bias = before->head_bias, m.sentence_order = before->sentence_order, m.mask_token = before->mask_token;
  m.mask_token = s.get("mask_token", m.mask_token,
                       "token that hides others, of a folder that of its tokenizer; -1: none is known, and such a model is not trained")
                     .at_least(-1)
                     .at_most(most_tokens);
  m.share = s.get("share", m.share, "of the tokens of a sample that are to be found again").positive().at_most(1);
  m.max_ngram =
      s.get("max_ngram", m.max_ngram, "words that are masked together, n of them with a probability proportional to 1/n").positive().at_most(64);
  m.head_bias = s.get("head_bias", m.head_bias, "bias of the layer in front of the output matrix").effect(Effect::function);
  m.sentence_order =
      s.get("sentence_order", m.sentence_order,
            "a text's first token also tells whether its halves are in their order, which are cut and swapped or not by sample (ALBERT; "
            "BERT's pooler and head of two classes); tokens of the second half have the second type, where model.type_vocab_size has two")
          .effect(Effect::function);
  m.seed = std::uint64_t(Index(s.get("seed", Index(m.seed), "seed of the masks, and of the halves' order").at_least(0)));
  return masked_tokens(m);
}

const RegisteredObjective registered_masked_tokens({"mlm", "masked tokens, in whole words where data.tokenizer tells them", read_masked_tokens});

}  // namespace

const Masking* masking_of(const Objective& objective) {
  const auto* const masked = dynamic_cast<const MaskedTokens*>(&objective);
  return masked ? &masked->masking() : nullptr;
}
std::shared_ptr<const Objective> masked_tokens(const Masking& masking) { return std::make_shared<const MaskedTokens>(masking); }

}  // namespace gyr
