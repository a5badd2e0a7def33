// SPDX-License-Identifier: BSD-3-Clause
// Masked tokens, which are found again from what stands on both sides: BERT's head, a linear layer, an activation and a norm in front of the output
// matrix with a bias. The layer in front is not sharded: every rank of the tensor axis has it for the rows of the stream that it keeps.
#include <cmath>

#include "modules/masking.hpp"
#include "modules/transform.hpp"
#include "modules/vocabulary_head.hpp"

namespace gyr {

namespace {

// What the matrix reads of the stream.
template <class T>
class MaskedTokensFront {
 public:
  MaskedTokensFront(const ModelConfig& c, Parameters& parameters)
      : last_(c, parameters), transform_(c, "lm_head", has_head_bias(*c.objective), parameters) {}

  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> x) { return transform_.forward(a, frame, last_.forward(a, frame, x)); }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dx) {
    Scope scope(a.dev.scratch);
    const auto dh = a.scratch<T>("gradient of linear", Index(dx.extent(0)), Index(dx.extent(1)));
    transform_.backward(a, frame, dy, dh);
    last_.backward(a, frame, dh, dx);
  }

 private:
  FinalNorm<T> last_;
  Transform<T> transform_;
};

template <class T>
using MaskedTokensHead = FrontedHead<T, MaskedTokensFront>;

class MaskedTokens final : public Objective {
 public:
  explicit MaskedTokens(const Masking& masking = {}) : masking_(masking) {}
  const char* name() const override { return "mlm"; }
  Labelled label(const SampleView& s) const override { return mask_tokens(masking_, s); }
  Index most_labels(Index seq_length) const override { return std::max<Index>(1, std::llround(masking_.share * double(seq_length))); }
  double scored() const override { return masking_.share; }
  const Masking& masking() const { return masking_; }
  bool reads_words() const override { return true; }
  void check_training(const ModelConfig& c) const override {
    require(masking_.mask_token >= 0 && masking_.mask_token < c.vocab_size, Exit::config,
            "train.mlm.mask_token = {}: masked tokens need the id of the token that hides them, one of the {} of model.vocab_size",
            masking_.mask_token, c.vocab_size);
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    Output output = output_of_tokens(c, table);
    output.bias = true;
    return make_typed<Head, MaskedTokensHead>(parameters.dtype(), c, LossTerms(), output, parameters);
  }
  double flops(const ModelConfig& c) const override {
    return 2.0 * double(c.hidden_size) * (scored() * double(c.vocab_size) + double(c.hidden_size));
  }

 private:
  Masking masking_;
};

std::shared_ptr<const Objective> read_masked_tokens(Section& train, const ModelConfig&, const Objective& otherwise) {
  Section& s = train.section("mlm", "masked tokens");
  Masking m;
  if (const auto* const before = dynamic_cast<const MaskedTokens*>(&otherwise)) m.head_bias = before->masking().head_bias;
  m.mask_token = s.get("mask_token", m.mask_token, "token that hides others; -1: none is given, and such a model is not trained")
                     .at_least(-1)
                     .at_most(most_tokens);
  m.share = s.get("share", m.share, "of the tokens of a sample that are to be found again").positive().at_most(1);
  m.max_ngram =
      s.get("max_ngram", m.max_ngram, "words that are masked together, n of them with a probability proportional to 1/n").positive().at_most(64);
  m.head_bias = s.get("head_bias", m.head_bias, "bias of the layer in front of the output matrix").effect(Effect::function);
  m.seed = std::uint64_t(Index(s.get("seed", Index(m.seed), "seed of the masks").at_least(0)));
  return masked_tokens(m);
}

const RegisteredObjective here({"mlm", "masked tokens, in whole words where data.tokenizer tells them", read_masked_tokens});

}  // namespace

bool has_head_bias(const Objective& objective) { return dynamic_cast<const MaskedTokens&>(objective).masking().head_bias; }
std::shared_ptr<const Objective> masked_tokens(const Masking& masking) { return std::make_shared<const MaskedTokens>(masking); }

}  // namespace gyr
