// SPDX-License-Identifier: BSD-3-Clause
// Front tokens: the rows of an encoder are embedded tokens, with the table of the text (T5).
#include "modules/layers/embedding.hpp"
#include "modules/model/front.hpp"

namespace gyr {
namespace {

class TokenFront final : public Front {
 public:
  explicit TokenFront(Embedding& text) : embedding_(text) {}
  AnyTensor2 forward(Pass& a, Frame& frame, const FrontInput& input) override { return embedding_.forward(a, frame, input.tokens); }
  void backward(Pass& a, Frame& frame, const AnyTensor2& dx) override { embedding_.backward(a, frame, dx); }

 private:
  Embedding& embedding_;
};

std::unique_ptr<Front> make(const ModelConfig&, Parameters&, Embedding& text) { return std::make_unique<TokenFront>(text); }

const RegisteredFront token_front({"tokens", make});

}  // namespace
}  // namespace gyr
