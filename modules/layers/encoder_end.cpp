// SPDX-License-Identifier: BSD-3-Clause
// Layer type >, the end of the encoder: source = norm(source), to which the cross-attention layers that follow attend.
// The decoder has a relative position bias of its own.
#include "modules/layers/norm.hpp"
#include "modules/layers/relative_bias.hpp"

namespace gyr {
namespace {

template <class T>
class EncoderEnd final : public Layer {
 public:
  // Weights NAME.norm and, if the model has a relative position bias, NAME.relative_bias
  EncoderEnd(const ModelConfig& c, const std::string& name, Parameters& parameters) : norm_(encoder_config(c), name + ".norm", parameters) {
    if (has_relative_bias(c)) bias_.emplace(c, name + ".relative_bias", parameters);
  }

  void forward(Pass& a, Frame& frame, Bundle& bundle) override {
    AnyTensor2& source = bundle[encoder_stream];
    if (a.source) source = norm_.forward(*a.source, frame, source.as<T>());
    if (bias_) bundle[position_bias] = bias_->forward(a, frame);
  }

  // The layers before this one use the encoder's relative position bias, whose gradient starts from zero here.
  void backward(Pass& a, Frame& frame, Bundle& gradient, MatrixGradients) override {
    Scope scope(a.dev.scratch);
    const auto d = gradient.find(encoder_stream).as<T>();
    const auto dsource = a.scratch<T>("gradient of the encoder output", Index(d.extent(0)), Index(d.extent(1)));
    norm_.backward(*a.source, frame, d, Add::no, dsource);
    convert<T, T>(a.dev, Matrix<const T>(dsource), Matrix<T>(d));
    if (!bias_) return;
    bias_->backward(a, gradient.find(position_bias));
    fill(a.dev, gradient.find(position_bias).flat(), 0);
  }
  void backward_weights(Pass&, Frame&) override {}

 private:
  Norm<T> norm_;
  std::optional<RelativeBias> bias_;
};

LayerFlops no_flops(const ModelConfig&, const TextLengths&) { return {}; }

ModelChains end_chains(const ModelConfig& c, const std::string& name) {
  ModelChains chains = relative_bias_chains(c, name + ".relative_bias");
  chains.push_back({"source", {norm_operator(encoder_config(c), name + ".norm")}, {}, {}, true});
  return chains;
}

const Registered registered_encoder_end({encoder_end,
                                         "encoder_end",
                                         "end of the encoder; layers before it are the encoder, layers after it the decoder",
                                         make_layer<EncoderEnd>,
                                         no_flops,
                                         end_chains,
                                         {},
                                         {.read_later = true}});

}  // namespace
}  // namespace gyr
