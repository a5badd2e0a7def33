// SPDX-License-Identifier: BSD-3-Clause
// Where an encoder ends and the text begins: source = norm(source), which the layers behind this attend to. What scores are added by distance is
// another table from here on.
#include "modules/layers/norm.hpp"
#include "modules/layers/relative_bias.hpp"

namespace gyr {
namespace {

template <class T>
class EncoderEnd final : public Layer {
 public:
  // Weights NAME.norm and, where the model has one, NAME.relative_bias
  EncoderEnd(const ModelConfig& c, const std::string& name, Parameters& parameters) : norm_(c, name + ".norm", parameters) {
    if (has_relative_bias(c)) bias_.emplace(c, name + ".relative_bias", parameters);
  }

  void forward(Pass& a, Frame& frame, Bundle& bundle) override {
    if (a.source) bundle.source = norm_.forward(*a.source, frame, bundle.source.as<T>());
    if (bias_) bundle.bias = bias_->forward(a, frame);
  }

  // The encoder's table has no gradient yet.
  void backward(Pass& a, Frame& frame, Bundle& gradient, MatrixGradients) override {
    Scope scope(a.dev.scratch);
    const auto d = gradient.source.as<T>();
    const auto dsource = a.scratch<T>("gradient of the source", Index(d.extent(0)), Index(d.extent(1)));
    norm_.backward(*a.source, frame, d, Add::no, dsource);
    convert<T, T>(a.dev, Matrix<const T>(dsource), Matrix<T>(d));
    if (!bias_) return;
    bias_->backward(a, gradient.bias);
    fill(a.dev, gradient.bias.flat(), 0);
  }
  void backward_weights(Pass&, Frame&) override {}

 private:
  Norm<T> norm_;
  std::optional<RelativeBias> bias_;
};

LayerFlops no_flops(const ModelConfig&, const TextLengths&) { return {}; }

const Registered registered_encoder_end(
    {encoder_end, "encoder_end", "the end of an encoder, whose layers stand in front", make_layer<EncoderEnd>, no_flops, {}});

}  // namespace
}  // namespace gyr
