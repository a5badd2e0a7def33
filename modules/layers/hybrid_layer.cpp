// SPDX-License-Identifier: BSD-3-Clause
// Layer type P (Falcon-H1): attention and Mamba-2 read one norm and add to one residual stream; a SwiGLU block follows.
#include <optional>

#include "modules/layers/attention.hpp"
#include "modules/layers/mamba.hpp"
#include "modules/layers/mlp.hpp"
#include "modules/layers/residual.hpp"

namespace gyr {
namespace {

template <class T>
class HybridLayer final : public Layer {
 public:
  HybridLayer(const ModelConfig& c, const std::string& name, Parameters& parameters)
      : mixer_(c, name + ".input_layernorm", name + ".post_layernorm", parameters) {
    add<Mamba>(parameters.mixers().ssm, c, name + ".mamba", parameters);
    add<Attention>(parameters.mixers().attention, c, name + ".self_attn", parameters);
    feed_forward_.emplace(c, name + ".pre_ff_layernorm", name + ".post_ff_layernorm", parameters);
    feed_forward_->add(std::make_unique<Mlp<T>>(c, name + ".feed_forward", parameters));
  }
  void forward(Pass& a, Frame& frame, Bundle& bundle) override {
    const auto mixed = mixer_.forward(a, frame.nested(0, "mixer"), bundle.x().as<T>());
    bundle.x() = feed_forward_->forward(a, frame.nested(1, "feed forward"), mixed);
  }
  void backward(Pass& a, Frame& frame, Bundle& gradient, MatrixGradients when) override {
    feed_forward_->backward(a, frame.nested(1), gradient.x().as<T>(), when);
    mixer_.backward(a, frame.nested(0), gradient.x().as<T>(), when);
  }
  void backward_weights(Pass& a, Frame& frame) override {
    feed_forward_->backward_weights(a, frame.nested(1));
    mixer_.backward_weights(a, frame.nested(0));
  }

 private:
  // Attention and Mamba-2 may run on separate teams of tensor-parallel ranks. A rank adds the mixers of its teams.
  template <template <class> class Mixer>
  void add(const Span& team, const ModelConfig& c, const std::string& name, Parameters& parameters) {
    if (!parameters.in(team)) return;
    const Parameters::Team declaring(parameters, team);
    mixer_.add(std::make_unique<Mixer<T>>(c, name, parameters));
  }

  Residual<T> mixer_;
  std::optional<Residual<T>> feed_forward_;
};

LayerFlops hybrid_flops(const ModelConfig& c, const TextLengths& n) { return attention_flops(c, n) + mamba_flops(c, n) + mlp_flops(c, n); }
ModelChains hybrid_chains(const ModelConfig& c, const std::string& name) {
  return {residual_chain(c, "mixers", name + ".input_layernorm", name + ".post_layernorm",
                         {mamba_operators(c, name + ".mamba"), attention_operators(c, name + ".self_attn")}),
          residual_chain(c, "feed forward", name + ".pre_ff_layernorm", name + ".post_ff_layernorm", {mlp_operators(c, name + ".feed_forward")})};
}

constexpr const char* help = "attention and Mamba-2 in parallel, then an MLP (Falcon-H1)";
constexpr LayerTraits traits = with_mamba({.attention = AttentionKind::full, .heads = attention_heads, .same_launches = true, .without_mixers = '-'});
const Registered hybrid(
    {'P', "hybrid", help, make_layer<HybridLayer>, hybrid_flops, hybrid_chains, {attention_section, mamba_section, mlp_section}, traits});

}  // namespace
}  // namespace gyr
