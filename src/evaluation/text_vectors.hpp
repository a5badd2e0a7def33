// SPDX-License-Identifier: BSD-3-Clause
// Vector of a text by a bidirectional model, the mean over its tokens of the output of the last norm:
//   v = 1/n sum over t of h(t),  h: final norm, or the output of the last layer if norms follow the residual sums
// A text is a micro-batch of its own, so its vector does not depend on other texts.
#pragma once

#include <memory>

#include "src/engine/step/engine.hpp"
#include "src/evaluation/scorer.hpp"

namespace gyr {

class TextVectors {
 public:
  // A model replica on every rank of a grid of data-parallel ranks. `most_tokens`: maximum length of a text. Exit::config for a model that is no
  // bidirectional encoder. Collective over the grid.
  TextVectors(const ModelConfig&, Grid&, const Fill&, Index most_tokens);
  ~TextVectors();

  Index width() const { return width_; }
  // Vector of a text of 1 to most_tokens tokens, in fp32. Without communication.
  std::vector<float> operator()(std::span<const Token> text);

 private:
  class Means;
  Index width_;
  Timers timers_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Means> means_;
};

}  // namespace gyr
