// SPDX-License-Identifier: BSD-3-Clause
// The front of a stack that runs before the text, such as an encoder: it makes the first rows of the stack's residual
// stream from the input of a micro-batch. Fronts register themselves by name, as layer types do by symbol, and
// declare the values that they read beside tokens (named_values.hpp), such as bytes of pixels or the grid of an
// image.
#pragma once

#include <memory>
#include <string>

#include "modules/model/model_config.hpp"
#include "modules/pass/named_values.hpp"
#include "modules/pass/pass.hpp"

namespace gyr {

class Embedding;

// Input of the stack on this rank, in device memory.
struct FrontInput {
  Tensor1<const Token> tokens;      // (R) one per row of this rank
  const NamedDeviceValues& values;  // the fields of the front
};

class Front {
 public:
  virtual ~Front() = default;
  // Rows of the residual stream that this rank keeps, a tensor of the frame. The pass is that of the stack.
  virtual AnyTensor2 forward(Pass&, Frame&, const FrontInput&) = 0;
  // Accumulates the gradients of weights. dx: gradient of the rows.
  virtual void backward(Pass&, Frame&, const AnyTensor2& dx) = 0;
};

// The functions take the configuration of the encoder (encoder_config).
struct FrontType {
  std::string name;
  // Declares the weights. `text`: embedding of the text, whose table a front may share.
  std::unique_ptr<Front> (*make)(const ModelConfig&, Parameters&, Embedding& text);
  // Values that it reads beside tokens, for inputs of `length` rows; null: none.
  std::vector<NamedField> (*fields)(const ModelConfig&, Index length) = nullptr;
  double (*flops)(const ModelConfig&) = nullptr;  // forward FLOPs per row; null: 0
};

// The front of the model's encoder (ModelConfig::encoder_front). Exit::config listing the known names if there is
// none.
const FrontType& encoder_front(const ModelConfig&);
// Its values, and FLOPs per row; none if the model has no encoder.
std::vector<NamedField> front_fields(const ModelConfig&, Index length);
double front_flops(const ModelConfig&);
// Makes it; null if the model has no encoder and reads no neighbours.
std::unique_ptr<Front> make_front(const ModelConfig&, Parameters&, Embedding& text);

struct RegisteredFront {
  explicit RegisteredFront(FrontType type);
};

}  // namespace gyr
