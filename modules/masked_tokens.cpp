// SPDX-License-Identifier: BSD-3-Clause
// Masked tokens, which are found again from what stands on both sides: BERT's head, a linear layer, an activation and a norm in front of the output
// matrix with a bias. The layer in front is not sharded: every rank of the tensor axis has it for the rows of the stream that it keeps.
#include "modules/masking.hpp"
#include "modules/vocabulary_head.hpp"

namespace gyr {

namespace {

// y = norm(a(h w' + b)), h the stream behind its last norm.
template <class T>
class Transform {
 public:
  Transform(const ModelConfig& c, Parameters& parameters)
      : last_(c, parameters), activation_(c.mlp.activation),
        w_(&parameters.declare(
            {"lm_head.dense.weight", {c.hidden_size, c.hidden_size}, replicated(), normal(c.init_std), Storage::factor, true, false, true})),
        b_(&parameters.declare({"lm_head.dense.bias", {c.hidden_size}, replicated(), zeros(), Storage::wide, false, false, true})),
        norm_(c, "lm_head.norm", parameters),
        bias_(&parameters.declare({"lm_head.bias", {c.vocab_size}, by_rows({{c.vocab_size, 0}}), zeros(), Storage::wide, false})) {}

  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> x) {
    const Tensor2<T> h = last_.forward(a, frame, x);
    const Index rows = h.extent(0), width = h.extent(1);
    frame.refer(read, h);
    const auto u = frame.put(linear_rows, rows, width), y = frame.put(active, rows, width);
    linear<T>(a.dev, h, w_->template factor<T>(), u);
    add_bias<T>(a.dev, b_->template vector<const Acc<T>>(), 1, u);
    activate<T>(a.dev, activation_, u, 1, y);
    return norm_.forward(a, frame.nested(0, "norm"), y);
  }

  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dx) {
    const auto u = frame.get(linear_rows), y = frame.get(active);
    Scope scope(a.dev.scratch);
    const auto du = a.scratch<T>("gradient of linear", Index(u.extent(0)), Index(u.extent(1)));
    norm_.backward(a, frame.nested(0), dy, Add::no, du);
    activate_backward<T>(a.dev, activation_, du, u, 1, y);  // the gradient takes the place of what was active
    weights_backward<T>(a.dev, {w_}, y, frame.get(read));
    biases_backward<T>(a.dev, {b_}, y);
    linear_backward_input<T>(a.dev, y, w_->template matrix<const T>(), du);
    last_.backward(a, frame, du, dx);
  }

  Parameter* bias() const { return bias_; }

 private:
  static constexpr Key<Tensor2<T>> read{"what the head reads"}, linear_rows{"head: linear"}, active{"head: active"};

  FinalNorm<T> last_;
  Activation activation_;
  Parameter *w_, *b_;
  Norm<T> norm_;
  Parameter* bias_;
};

template <class T>
using MaskedTokensHead = FrontedHead<T, Transform>;

class MaskedTokens final : public Objective {
 public:
  explicit MaskedTokens(const Masking& masking = {}) : masking_(masking) {}
  const char* name() const override { return "mlm"; }
  Labelled label(const SampleView& s) const override { return mask_tokens(masking_, s); }
  bool reads_words() const override { return true; }
  void check_training(const ModelConfig& c) const override {
    require(masking_.mask_token >= 0 && masking_.mask_token < c.vocab_size, Exit::config,
            "train.mlm.mask_token = {}: masked tokens need the id of the token that hides them, one of the {} of model.vocab_size",
            masking_.mask_token, c.vocab_size);
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    return make_typed<Head, MaskedTokensHead>(parameters.dtype(), c, LossTerms(), table, parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(c.vocab_size + c.hidden_size); }

 private:
  Masking masking_;
};

std::shared_ptr<const Objective> read_masked_tokens(Section& train) {
  Section& s = train.section("mlm", "masked tokens");
  Masking m;
  m.mask_token = s.get("mask_token", m.mask_token, "token that hides others; -1: none is given, and such a model is not trained")
                     .at_least(-1)
                     .at_most(most_tokens);
  m.share = s.get("share", m.share, "of the tokens of a sample that are to be found again").positive().at_most(1);
  m.max_ngram =
      s.get("max_ngram", m.max_ngram, "words that are masked together, n of them with a probability proportional to 1/n").positive().at_most(64);
  m.seed = std::uint64_t(Index(s.get("seed", Index(m.seed), "seed of the masks").at_least(0)));
  return masked_tokens(m);
}

const RegisteredObjective here({"mlm", "masked tokens, in whole words where data.tokenizer tells them", read_masked_tokens});

}  // namespace

std::shared_ptr<const Objective> masked_tokens(const Masking& masking) { return std::make_shared<const MaskedTokens>(masking); }

}  // namespace gyr
