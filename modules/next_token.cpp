// SPDX-License-Identifier: BSD-3-Clause
// The next token: final norm, output matrix and cross-entropy, sharded over the tensor axis by vocabulary. Logits exist for a block of rows at a
// time: the loss of a block and its gradient are taken together, and no rank ever holds a whole row.
#include "kernels/sum.hpp"
#include "modules/embedding.hpp"
#include "modules/objective.hpp"
#include "modules/stream.hpp"
#include "modules/trainable.hpp"

namespace gyr {

namespace {

constexpr Index block_rows = 256;  // enough for a full-rate product, few enough for the logits to stay small

// body(first, n) for the blocks of so many rows.
template <class Body>
void for_blocks(Device& dev, Index rows, const Body& body) {
  const Index whole = rows / block_rows, rest = rows % block_rows;
  for_equal(dev, whole, [&](Index i) { body(i * block_rows, block_rows); });
  if (rest > 0) body(whole * block_rows, rest);
}

// A sum that has yet to begin, on scratch.
Tensor1<double> zero(Device& dev) {
  const auto sum = dev.scratch.tensor<double>(1);
  fill<double>(dev, sum, 0);
  return sum;
}

Parameter& output_matrix(const ModelConfig& c, Parameter* table, Parameters& parameters) {
  if (table) return *table;
  Weight weight = embedding_weight(c);
  if (!c.tie_word_embeddings) {
    weight.name = "lm_head.weight";
    weight.storage = Storage::factor;
    return parameters.declare(std::move(weight));
  }
  parameters.begin_group();
  Parameter& w = parameters.declare(std::move(weight));
  parameters.keep_whole();
  w.tied = true;
  return w;
}

template <class T>
class NextTokenHead final : public Head {
 public:
  NextTokenHead(const ModelConfig& c, const LossTerms& terms, Parameter* table, Parameters& parameters)
      : NextTokenHead(c, terms, Norm<T>(c, "model.final_layernorm", parameters), table, parameters) {}

  void loss(Pass& a, Frame& frame, const AnyTensor2& x, Tensor1<const Token> labels, Tensor1<double> sum, std::vector<RowScore>* each) override {
    const Tensor2<T> h = norm_.forward(a, frame, x.as<const T>());
    Scope scope(a.dev.scratch);
    const Device::Purpose purpose(a.dev, stream_purpose);
    loss_of_blocks(a, AllRows<T>(a, "normed, all rows", h).gather(), labels, 0, sum, each);
  }

  // The gradient takes the place of the normed stream.
  void loss_and_gradient(Pass& a, Frame& frame, const AnyTensor2& x, Tensor1<const Token> labels, double scale, Tensor1<double> sum) override {
    const Tensor2<T> h = norm_.forward(a, frame, x.as<const T>());
    frame.refer(gradient, h);
    Scope scope(a.dev.scratch);
    const Device::Purpose purpose(a.dev, stream_purpose);
    AllRows<T> all(a, "normed, all rows", h);
    loss_of_blocks(a, all.gather(), labels, scale, sum, nullptr);
    all.reduce();
  }
  void backward(Pass& a, Frame& frame, const AnyTensor2& dx) override { norm_.backward(a, frame, frame.get(gradient), Add::no, dx.as<T>()); }

  void predict(Pass& a, Frame& frame, const AnyTensor2& x, const AnyTensor2& logits) override {
    linear<T, A>(a.dev, norm_.forward(a, frame, x.as<const T>()), w_.factor<T>(), logits.as<A>(), multiplier_);
  }

 private:
  using A = Acc<T>;

  // The norm is declared before the matrix.
  NextTokenHead(const ModelConfig& c, const LossTerms& terms, Norm<T> norm, Parameter* table, Parameters& parameters)
      : Head(output_matrix(c, table, parameters)), norm_(std::move(norm)), multiplier_(c.lm_head_multiplier), terms_(terms) {
    terms_.vocab_size = c.vocab_size;
  }

  static constexpr Key<Tensor2<T>> gradient{"gradient of normed"};
  static constexpr const char *stream_purpose = "head: rows x hidden", *sums_purpose = "head: largest logit and sums of each row";

  void loss_of_blocks(Pass& a, Tensor2<T> h, Tensor1<const Token> labels, double scale, Tensor1<double> sum, std::vector<RowScore>* each) {
    const Workspace workspace(a.dev.scratch, "loss");
    const auto here = zero(a.dev);
    for_blocks(a.dev, h.extent(0), [&](Index first, Index n) { block_loss(a, rows(h, first, n), rows(labels, first, n), scale, here, each); });
    add_in_order(a.dev, here, sum);
  }

  // Adds the loss of some rows to `sum`. Where scale is not 0, h becomes the gradient of scale * loss; with `each`, also the score of every row.
  void block_loss(Pass& a, Tensor2<T> h, Tensor1<const Token> labels, double scale, Tensor1<double> sum, std::vector<RowScore>* each) {
    const Index n = h.extent(0), columns = columns_here(), first_token = first_column();
    Scope scope(a.dev.scratch);
    auto& scratch = a.dev.scratch;
    auto logits = scratch.template tensor<A>(n, columns);
    auto top = scratch.template tensor<A>(n);
    const LossTerms terms = scale == 0 ? LossTerms{} : terms_;  // what is only measured is the plain loss
    auto sums = scratch.template tensor<A>(terms.sums(), n);
    auto losses = scratch.template tensor<double>(n);
    linear<T, A>(a.dev, h, w_.factor<T>(), logits, multiplier_);
    if (each && observer_ && !a.dev.dry_run()) observer_(logits);
    const Device::Purpose purpose(a.dev, sums_purpose);
    logits_top<A>(a.dev, logits, valid(), top);
    a.tensor.whole().all_reduce(a.dev, top, Reduction::max);
    logits_sums<A>(a.dev, logits, valid(), top, labels, first_token, sums);
    a.tensor.whole().all_reduce(a.dev, flat(sums));
    cross_entropy<A>(a.dev, sums, top, labels, terms, losses);
    add_in_order(a.dev, losses, sum);
    if (scale != 0) {
      Tensor2<T> dlogits;
      if constexpr (std::is_same_v<T, A>) dlogits = logits;
      else dlogits = scratch.template tensor<T>(n, columns);
      cross_entropy_backward<T>(a.dev, logits, valid(), top, sums, labels, first_token, scale, terms, dlogits);
      weights_backward<T>(a.dev, {&w_}, dlogits, h, multiplier_);
      linear_backward_input<T>(a.dev, dlogits, w_.matrix<const T>(), h, multiplier_);
    }
    if (!each || a.dev.dry_run()) return;
    const auto loss = to_host(a.dev, losses);
    const auto below = to_host(a.dev, rows(flat(sums), n, n));  // the label's logit less the largest
    for (Index r = 0; r < n; ++r) each->push_back({loss[r], -double(below[r])});
  }

  Norm<T> norm_;
  double multiplier_;
  LossTerms terms_;
};

class NextToken final : public Objective {
 public:
  explicit NextToken(const LossTerms& terms = {}) : terms_(terms) {}
  Labelled label(std::span<const Token> tokens, std::span<const std::uint8_t> learned, Index) const override {
    return {{tokens.begin(), tokens.end() - 1}, next_tokens(tokens, learned)};
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    return make_typed<Head, NextTokenHead>(parameters.dtype(), c, terms_, table, parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(c.vocab_size); }

 private:
  LossTerms terms_;
};

std::shared_ptr<const Objective> read_next_token(Section& train) {
  LossTerms terms;
  terms.smoothing =
      train.get("label_smoothing", 0.0, "part of a label that all tokens share, as in PyTorch; in training alone").at_least(0).at_most(1);
  terms.z = train.get("z_loss", 0.0, "times the square of the logarithm of each row's sum of exponentials, added to its loss; in training alone")
                .at_least(0)
                .at_most(1);
  return next_token(terms);
}

const RegisteredObjective here({"next_token", "each token that follows", read_next_token});

}  // namespace

std::shared_ptr<const Objective> next_token() {
  static const auto objective = std::make_shared<const NextToken>();
  return objective;
}

std::shared_ptr<const Objective> next_token(const LossTerms& terms) {
  return terms.smoothing > 0 || terms.z > 0 ? std::make_shared<const NextToken>(terms) : next_token();
}

std::vector<Token> next_tokens(std::span<const Token> tokens, std::span<const std::uint8_t> learned) {
  std::vector<Token> labels;
  for (std::size_t t = 1; t < tokens.size(); ++t) labels.push_back(learned[t] ? tokens[t] : ignored_label);
  return labels;
}

}  // namespace gyr
