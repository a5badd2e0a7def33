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
  Tensor2<T> forward(Pass<T>& a, Tensor2<const T> x) override { return feed_forward_->forward(a, mixer_.forward(a, x)); }
  void backward(Pass<T>& a, Tensor2<T> dx) override {
    feed_forward_->backward(a, dx);
    mixer_.backward(a, dx);
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
                       }});

}  // namespace
}  // namespace gyr
