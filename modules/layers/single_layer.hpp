// SPDX-License-Identifier: BSD-3-Clause
// A layer with one residual connection.
#pragma once

#include <memory>
#include <string>

#include "modules/layers/residual.hpp"
#include "modules/model/layer.hpp"

namespace gyr {

// The first branch has the name of the layer followed by `branch`. Derived classes may add more.
template <class T, template <class> class Mixer>
class SingleLayer : public Layer {
 public:
  SingleLayer(const ModelConfig& c, const std::string& name, const char* branch, Parameters& parameters)
      : residual_(c, name + ".input_layernorm", name + ".post_layernorm", parameters) {
    residual_.add(std::make_unique<Mixer<T>>(c, name + branch, parameters));
  }
  void forward(Pass& a, Frame& frame, Bundle& bundle) override { bundle.x() = residual_.forward(a, frame, bundle.x().as<T>()); }
  void backward(Pass& a, Frame& frame, Bundle& gradient, MatrixGradients when) override { residual_.backward(a, frame, gradient.x().as<T>(), when); }
  void backward_weights(Pass& a, Frame& frame) override { residual_.backward_weights(a, frame); }

 protected:
  Residual<T> residual_;
};

// Chains of a layer whose only residual block has one branch.
template <OperatorChain (*operators)(const ModelConfig&, const std::string&), const char* branch>
ModelChains chains_of(const ModelConfig& c, const std::string& name) {
  return {single_chain(c, name, {operators(c, name + branch)})};
}
}  // namespace gyr
