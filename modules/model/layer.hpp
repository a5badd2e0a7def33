// SPDX-License-Identifier: BSD-3-Clause
// A layer receives the tensors that travel through a model (bundle.hpp), and returns them with its branches added to
// the residual stream. A branch reads the normed stream and computes one summand. Layer types register themselves by
// symbol, so that a deck's pattern can name them and every general test covers each of them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>

#include "kernels/ops/rmsnorm.hpp"
#include "modules/model/layer_traits.hpp"
#include "modules/model/model_chains.hpp"
#include "modules/model/model_config.hpp"
#include "modules/pass/bundle.hpp"
#include "modules/pass/stream.hpp"
#include "modules/settings/settings.hpp"

namespace gyr {

// now: a backward also computes the gradients of matrices, whose GEMMs are as large as those of the input gradient.
// later: backward_weights does (Qi et al., "Zero Bubble Pipeline Parallelism", 2024).
enum class MatrixGradients { now, later };

class Layer {
 public:
  virtual ~Layer() = default;
  // Replaces x by x + branches(x), a new tensor in the frame. The caller must keep the old x until the backward has
  // ended.
  virtual void forward(Pass&, Frame&, Bundle&) = 0;
  // The gradient of the output becomes that of the input, in place. Accumulates the gradients of vectors and, unless
  // deferred, those of matrices.
  virtual void backward(Pass&, Frame&, Bundle& gradient, MatrixGradients) = 0;
  // Accumulates the deferred gradients of matrices.
  virtual void backward_weights(Pass&, Frame&) = 0;
};

template <class T>
class Branch {
 public:
  virtual ~Branch() = default;
  // y (= or +=) this rank's part of the branch's output; the sum over the tensor-parallel ranks is the full output. If
  // y is empty, only the tensors that the frame wants are computed.
  virtual void forward(Pass&, Frame&, AllRows<T>& h /*(R,D)*/, Add, Tensor2<T> y /*(R,D)*/) = 0;
  // dh (= or +=) this rank's part of the gradient of h. Accumulates gradients of vectors. Saves in the frame what the
  // gradients of matrices need.
  virtual void backward(Pass&, Frame&, Tensor2<const T> dy, Add, Tensor2<T> dh) = 0;
  // Accumulates gradients of matrices. h: the same values as in the forward.
  virtual void backward_weights(Pass&, Frame&, Tensor2<const T> h, Tensor2<const T> dy) = 0;
};

inline double beta(Add add) { return add == Add::yes ? 1 : 0; }

// Tokens of the text, and of the source that an encoder reads for it; 0: no source.
struct TextLengths {
  Index text, source = 0;
  TextLengths(Index text, Index source = 0) : text(text), source(source) {}
};

// Forward flops per token of one layer; a multiply-add counts as two. See flops.hpp for the conventions.
struct LayerFlops {
  double gemms = 0;       // FLOPs of the projection GEMMs
  double attention = 0;   // scores and values over visible keys: half of the sequence if causal, fewer with a window
  double recurrence = 0;  // FLOPs of the SSM as a plain recurrence
  double scan = 0;        // FLOPs of the SSM as it is executed, chunk by chunk
  double convolution = 0;
};
LayerFlops operator+(const LayerFlops&, const LayerFlops&);

LayerFlops operator*(double, const LayerFlops&);

// Constructs a layer, which declares its weights and computes in their scalar type.
using MakeLayer = std::unique_ptr<Layer> (*)(const ModelConfig&, const std::string& name, Parameters&);
template <template <class> class Typed>
std::unique_ptr<Layer> make_layer(const ModelConfig& c, const std::string& name, Parameters& parameters) {
  return make_typed<Layer, Typed>(parameters.dtype(), c, name, parameters);
}

// Settings of one kind of branch, deck section model.NAME. `read` reads them, with the configuration's values as
// defaults.
struct LayerSection {
  const char* name;
  const char* help;
  void (*read)(Section&, ModelConfig&);
};

// Entry of the table of layer types. The source file of a type registers it: const Registered here{LayerType{...}}.
struct LayerType {
  char symbol;
  const char* name;
  const char* help;
  MakeLayer make;
  LayerFlops (*flops)(const ModelConfig&, const TextLengths&);
  ModelChains (*chains)(const ModelConfig&, const std::string& name);  // operators of the layer with this name
  std::vector<LayerSection> sections;
  LayerTraits traits;
};

const std::vector<LayerType>& layer_types();  // all layer types, sorted by symbol
const LayerType& layer_type(char symbol);     // Exit::config listing the known symbols if there is none
const LayerType& layer_type(std::string_view name);
std::vector<LayerSection> layer_sections();  // sections of all types, each once, sorted by name

// Index of the first of `symbols` whose type has a property, given as a member of LayerTraits or as a function of it;
// npos if there is none.
template <class Property>
std::size_t find_layer(std::string_view symbols, Property&& property) {
  const auto found = std::find_if(symbols.begin(), symbols.end(), [&](char s) { return bool(std::invoke(property, layer_type(s).traits)); });
  return found == symbols.end() ? symbols.npos : std::size_t(found - symbols.begin());
}
template <class Property>
bool has_layer(std::string_view symbols, Property&& property) {
  return find_layer(symbols, property) != symbols.npos;
}
inline auto attends(AttentionKind kind) {
  return [kind](const LayerTraits& t) { return t.attention == kind; };
}

// Symbol that ends the encoder: layers before it read the source bidirectionally, layers after it generate the text. A
// pattern has at most one.
inline constexpr char encoder_end = '>';
// Symbol that ends a vision tower, an encoder of images: its rows take the places of image tokens in the text.
inline constexpr char tower_end = 'V';
bool has_encoder(const ModelConfig&);
bool reads_images(const ModelConfig&);        // true if the encoder is a vision tower
Index layers_of_encoder(const ModelConfig&);  // number of layers before the symbol > or V; 0: no encoder
// A model is a list of stacks, each with a configuration of its own. The pattern of a model with an encoder is that of two
// stacks, joined by the symbol > or V, which belongs to the second: the text reads the output of the encoder.
struct Stack {
  Span layers;
  ModelConfig config;
};
std::vector<Stack> stacks_of(const ModelConfig&);
ModelConfig encoder_config(const ModelConfig&);  // of the encoder, whose attention is not causal
ModelConfig config_of_layer(const ModelConfig&, Index layer);
// Layers from the first to the last one that reads neighbours (layers R); empty: none does.
Span retrieval_layers(const ModelConfig&);
inline bool reads_neighbours(const ModelConfig& c) { return retrieval_layers(c).size() > 0; }
// True if a training step draws dropout masks, in the model or in its encoder of neighbours.
inline bool draws_dropout(const ModelConfig& c) { return c.dropout.any() || (reads_neighbours(c) && c.retrieval.dropout > 0); }
// True if a layer has FLOPs and weights that later layers of its type have not (LayerTraits::flops_of_first).
bool is_larger_first(const ModelConfig&, Index layer);
// Forward flops of a layer per token of the text.
LayerFlops layer_flops(const ModelConfig&, Index layer, const TextLengths&);

struct Registered {
  explicit Registered(LayerType type);
};

}  // namespace gyr
