// SPDX-License-Identifier: BSD-3-Clause
// A layer takes the residual stream and gives it back with its branches added; a branch reads the normed stream and adds its part.
// Layer types register themselves by symbol, so that a deck's pattern can name them and every law is checked for each of them.
#pragma once

#include <memory>
#include <tuple>

#include "kernels/rmsnorm.hpp"
#include "modules/model_config.hpp"
#include "modules/parameter.hpp"
#include "modules/pass.hpp"

namespace gyr {

template <class T>
class Layer {
 public:
  virtual ~Layer() = default;
  // Returns x + branches(x), a tensor on pass.saved, where x must stay until backward.
  virtual Tensor2<T> forward(Pass<T>&, Tensor2<const T> x /*(R,D)*/) = 0;
  // dx holds the gradient of the output on entry and that of the input on return.
  virtual void backward(Pass<T>&, Tensor2<T> dx /*(R,D)*/) = 0;
};

template <class T>
class Branch {
 public:
  virtual ~Branch() = default;
  // y (= or +=) this rank's part of the branch's output: the sum over the tensor axis is the whole.
  virtual void forward(Pass<T>&, Tensor2<const T> h /*(R,D)*/, Add, Tensor2<T> y /*(R,D)*/) = 0;
  // dh (= or +=) this rank's part of the gradient of h; gradients of weights are added up.
  virtual void backward(Pass<T>&, Tensor2<const T> dy, Add, Tensor2<T> dh) = 0;
};

inline double beta(Add add) { return add == Add::yes ? 1 : 0; }

// Forward flops of one token in one layer, multiply-adds counting two, under the conventions of flops.hpp.
struct LayerFlops {
  double products = 0;    // projections
  double attention = 0;   // scores and values, the causal half of `seq_length` keys
  double recurrence = 0;  // SSM as a plain recurrence
  double scan = 0;        // SSM as it is executed, chunk by chunk
  double convolution = 0;
};
LayerFlops operator+(const LayerFlops&, const LayerFlops&);

template <class T>
using MakeLayer = std::unique_ptr<Layer<T>> (*)(const ModelConfig&, const std::string& name, Parameters<T>&);

// A row of the table of layer types. Its file defines one of them and registers it: const Registered here{LayerType{...}}.
struct LayerType {
  char symbol;
  const char* name;
  const char* help;
  std::tuple<MakeLayer<double>, MakeLayer<float>, MakeLayer<bf16>> make;
  LayerFlops (*flops)(const ModelConfig&, Index seq_length);
};

const std::vector<LayerType>& layer_types();  // by symbol
const LayerType& layer_type(char symbol);     // Exit::config with the known symbols where there is none

struct Registered {
  explicit Registered(LayerType type);
};

}  // namespace gyr
