// SPDX-License-Identifier: BSD-3-Clause
// Front tokens: the rows of an encoder, or of the encoder of neighbours (layers R), are embedded tokens. Their table is that of
// the text (T5) or, if the encoder has another width, one of its own: model.encoder.embed_tokens.weight.
#include "modules/layers/embedding.hpp"
#include "modules/model/front.hpp"

namespace gyr {
namespace {

class TokenFront final : public Front {
 public:
  TokenFront(const ModelConfig& c, Parameters& parameters, Embedding& text)
      : own_(has_own_table(c, text) ? make_own(c, parameters, text) : nullptr), embedding_(own_ ? *own_ : text) {}
  AnyTensor2 forward(Pass& a, Frame& frame, const FrontInput& input) override { return embedding_.forward(a, frame, input.tokens); }
  void backward(Pass& a, Frame& frame, const AnyTensor2& dx) override { embedding_.backward(a, frame, dx); }

 private:
  static bool has_own_table(const ModelConfig& c, Embedding& text) { return c.hidden_size != text.table().weight.shape.at(1); }
  // A tied table of the text, if no weight followed it, is in a group of its own that must equal that of the last stage.
  static std::unique_ptr<Embedding> make_own(const ModelConfig& c, Parameters& parameters, Embedding& text) {
    if (shares_embedding(c) && parameters.all().back().get() == &text.table()) parameters.begin_group();
    return std::make_unique<Embedding>(own_config(c), parameters, "model.encoder.");
  }
  // The embedding of the text makes the relative position bias, and the head may read its table.
  static ModelConfig own_config(ModelConfig own) {
    own.attention.relative_bias.buckets = 0, own.tie_word_embeddings = false;
    return own;
  }

  std::unique_ptr<Embedding> own_;
  Embedding& embedding_;
};

std::unique_ptr<Front> make(const ModelConfig& c, Parameters& parameters, Embedding& text) {
  return std::make_unique<TokenFront>(c, parameters, text);
}

const RegisteredFront token_front({"tokens", make});

}  // namespace
}  // namespace gyr
