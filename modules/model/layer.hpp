// SPDX-License-Identifier: BSD-3-Clause
// A layer takes the bundle that travels through a model and gives it back with its branches added to the residual stream; a branch reads the
// normed stream and adds its part.
// Layer types register themselves by symbol, so that a deck's pattern can name them and every law is checked for each of them.
#pragma once

#include <memory>

#include "kernels/ops/rmsnorm.hpp"
#include "modules/model/model_config.hpp"
#include "modules/pass/bundle.hpp"
#include "modules/pass/stream.hpp"
#include "modules/settings/settings.hpp"

namespace gyr {

// Whether a backward adds up the gradients of matrices, products as large as those that bring it on, or leaves them for later (Qi et al., "Zero
// Bubble Pipeline Parallelism", 2024).
enum class MatrixGradients { now, later };

class Layer {
 public:
  virtual ~Layer() = default;
  // x becomes x + branches(x), a tensor of the frame; the tensor that x was must stay until the backward has ended.
  virtual void forward(Pass&, Frame&, Bundle&) = 0;
  // The gradient of the output becomes that of the input, in place. Gradients of vectors are added up; those of matrices too, or they are left.
  virtual void backward(Pass&, Frame&, Bundle& gradient, MatrixGradients) = 0;
  // Adds up the gradients that have been left.
  virtual void backward_weights(Pass&, Frame&) = 0;
};

template <class T>
class Branch {
 public:
  virtual ~Branch() = default;
  // y (= or +=) this rank's part of the branch's output: the sum over the tensor axis is the whole. Absent: only what the frame wants.
  virtual void forward(Pass&, Frame&, AllRows<T>& h /*(R,D)*/, Add, Tensor2<T> y /*(R,D)*/) = 0;
  // dh (= or +=) this rank's part of the gradient of h; gradients of vectors are added up. Keeps in the frame what those of matrices need.
  virtual void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) = 0;
  // Adds up gradients of matrices. h: as it was.
  virtual void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) = 0;
};

inline double beta(Add add) { return add == Add::yes ? 1 : 0; }

// Tokens of a text, and of the source that an encoder has read for it; 0: there is none.
struct TextLengths {
  Index text, source = 0;
  TextLengths(Index text, Index source = 0) : text(text), source(source) {}
};

// Forward flops of one token in one layer, multiply-adds counting two, under the conventions of flops.hpp.
struct LayerFlops {
  double products = 0;    // projections
  double attention = 0;   // scores and values of `seq_length` keys: under a causal mask of half of them, of these what a window shows
  double recurrence = 0;  // SSM as a plain recurrence
  double scan = 0;        // SSM as it is executed, chunk by chunk
  double convolution = 0;
};
LayerFlops operator+(const LayerFlops&, const LayerFlops&);

LayerFlops operator*(double, const LayerFlops&);

// Declares its weights, and computes in their scalar.
using MakeLayer = std::unique_ptr<Layer> (*)(const ModelConfig&, const std::string& name, Parameters&);
template <template <class> class Typed>
std::unique_ptr<Layer> make_layer(const ModelConfig& c, const std::string& name, Parameters& parameters) {
  return make_typed<Layer, Typed>(parameters.dtype(), c, name, parameters);
}

// The settings of a kind of branch, model.NAME: what they are is read over the defaults in the configuration.
struct LayerSection {
  const char* name;
  const char* help;
  void (*read)(Section&, ModelConfig&);
};

// A row of the table of layer types. Its file defines one of them and registers it: const Registered here{LayerType{...}}.
struct LayerType {
  char symbol;
  const char* name;
  const char* help;
  MakeLayer make;
  LayerFlops (*flops)(const ModelConfig&, const TextLengths&);
  std::vector<LayerSection> sections;
};

const std::vector<LayerType>& layer_types();  // by symbol
const LayerType& layer_type(char symbol);     // Exit::config with the known symbols where there is none
std::vector<LayerSection> layer_sections();   // of all of them, each once, by name

// Layers before this one read the source, both ways; it and those behind it write the text. A pattern has it once or not at all.
inline constexpr char encoder_end = '>';
bool has_encoder(const ModelConfig&);
Index layers_of_encoder(const ModelConfig&);  // before it; 0: there is none
// The model as layer i computes with it: an encoder looks both ways.
ModelConfig config_of_layer(const ModelConfig&, Index layer);
// Per token of the text.
LayerFlops layer_flops(const ModelConfig&, Index layer, const TextLengths&);

struct Registered {
  explicit Registered(LayerType type);
};

}  // namespace gyr
