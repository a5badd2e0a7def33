// SPDX-License-Identifier: BSD-3-Clause
// The Falcon-H1 layer: attention and Mamba-2 read one norm and add to one stream; a SwiGLU block follows.
#include <optional>

#include "modules/attention.hpp"
#include "modules/mamba.hpp"
#include "modules/mlp.hpp"
#include "modules/residual.hpp"

namespace gyr {
namespace {

template <class T>
class HybridLayer final : public Layer<T> {
 public:
  HybridLayer(const ModelConfig& c, const std::string& name, Parameters<T>& parameters) : mixer_(c, name + ".input_layernorm", parameters) {
    mixer_.add(std::make_unique<Mamba<T>>(c, name + ".mamba", parameters));
    mixer_.add(std::make_unique<Attention<T>>(c, name + ".self_attn", parameters));
    feed_forward_.emplace(c, name + ".pre_ff_layernorm", parameters);
    feed_forward_->add(std::make_unique<Mlp<T>>(c, name + ".feed_forward", parameters));
  }
  void forward(Pass<T>& a, Frame& frame, Bundle<T>& bundle) override {
    const auto mixed = mixer_.forward(a, frame.nested(0, "mixer"), bundle.x);
    bundle.x = feed_forward_->forward(a, frame.nested(1, "feed forward"), mixed);
  }
  void backward_input(Pass<T>& a, Frame& frame, Bundle<T>& gradient) override {
    feed_forward_->backward(a, frame.nested(1), gradient.x);
    mixer_.backward(a, frame.nested(0), gradient.x);
  }

 private:
  Residual<T> mixer_;
  std::optional<Residual<T>> feed_forward_;
};

template <class T>
std::unique_ptr<Layer<T>> make(const ModelConfig& c, const std::string& name, Parameters<T>& parameters) {
  return std::make_unique<HybridLayer<T>>(c, name, parameters);
}

const Registered here({'P',
                       "hybrid",
                       "attention and Mamba-2 side by side, then SwiGLU (Falcon-H1)",
                       {make<double>, make<float>, make<bf16>},
                       [](const ModelConfig& c, Index seq_length) {
                         return attention_flops(c, seq_length) + mamba_flops(c, seq_length) + mlp_flops(c, seq_length);
                       },
                       {attention_section, mamba_section, mlp_section}});

}  // namespace
}  // namespace gyr
