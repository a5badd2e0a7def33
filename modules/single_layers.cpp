// SPDX-License-Identifier: BSD-3-Clause
// Layers of one branch, for patterns such as "M*-M-": Mamba-2, attention, SwiGLU.
#include "modules/attention.hpp"
#include "modules/mamba.hpp"
#include "modules/mlp.hpp"
#include "modules/residual.hpp"

namespace gyr {
namespace {

template <class T, template <class> class Mixer>
class SingleLayer final : public Layer<T> {
 public:
  SingleLayer(const ModelConfig& c, const std::string& name, const char* branch, Parameters<T>& parameters)
      : residual_(c, name + ".input_layernorm", parameters) {
    residual_.add(std::make_unique<Mixer<T>>(c, name + branch, parameters));
  }
  void forward(Pass<T>& a, Frame& frame, Bundle<T>& bundle) override { bundle.x = residual_.forward(a, frame, bundle.x); }
  void backward_input(Pass<T>& a, Frame& frame, Bundle<T>& gradient) override { residual_.backward(a, frame, gradient.x); }

 private:
  Residual<T> residual_;
};

template <class T>
std::unique_ptr<Layer<T>> make_mamba(const ModelConfig& c, const std::string& name, Parameters<T>& parameters) {
  return std::make_unique<SingleLayer<T, Mamba>>(c, name, ".mamba", parameters);
}
template <class T>
std::unique_ptr<Layer<T>> make_attention(const ModelConfig& c, const std::string& name, Parameters<T>& parameters) {
  return std::make_unique<SingleLayer<T, Attention>>(c, name, ".self_attn", parameters);
}
template <class T>
std::unique_ptr<Layer<T>> make_mlp(const ModelConfig& c, const std::string& name, Parameters<T>& parameters) {
  return std::make_unique<SingleLayer<T, Mlp>>(c, name, ".feed_forward", parameters);
}

const Registered mamba({'M', "mamba", "Mamba-2 alone", {make_mamba<double>, make_mamba<float>, make_mamba<bf16>}, mamba_flops, {mamba_section}});
const Registered attention({'*',
                            "attention",
                            "attention alone",
                            {make_attention<double>, make_attention<float>, make_attention<bf16>},
                            attention_flops,
                            {attention_section}});
const Registered mlp({'-', "mlp", "SwiGLU alone", {make_mlp<double>, make_mlp<float>, make_mlp<bf16>}, mlp_flops, {mlp_section}});

}  // namespace
}  // namespace gyr
