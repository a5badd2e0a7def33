// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/text_vectors.hpp"

#include "kernels/ops/host_values.hpp"
#include "src/engine/dry_run/plan.hpp"

namespace gyr {

namespace {

std::string last_norm(const ModelConfig& c) {
  return c.norm_placement == NormPlacement::after ? fmt::format("model.layers.{}.output", c.layers() - 1) : "model.final_layernorm";
}

void require_encoder(const ModelConfig& c) {
  require(!c.attention.causal, Exit::config,
          "model.attention.causal = true: vectors of texts need a model in which every token sees the full text; choose a bidirectional model");
  require(!reads_neighbours(c) && !c.objective->has_source(), Exit::config,
          "model.pattern = {}: vectors of texts need a model that reads one text; choose one without encoder input and layers R", c.pattern);
}

EngineConfig config_of(const ModelConfig& model, Index most_tokens) {
  EngineConfig config;
  config.model = model;
  config.precision = DType::f32;
  config.training = false;
  config.seq_length = most_tokens;
  return config;
}

}  // namespace

// Mean over the rows of the last norm's output.
class TextVectors::Means final : public Hook {
 public:
  Means(Device& device, std::string name) : device_(device), name_(std::move(name)) {}

  void micro_batch(int) override {}
  void observe(Observed what, const std::string& name, const AnyMatrix& x, Index, Index, std::span<const Held>) override {
    if (what != Observed::activation || name != name_) return;
    device_.fence();
    HostValues<float> host(Tensor1<float>(static_cast<float*>(const_cast<void*>(x.data)), (x.rows - 1) * x.stride + x.columns));
    host.take();
    std::vector<double> sums(std::size_t(x.columns));
    for (Index r = 0; r < x.rows; ++r)
      for (Index c = 0; c < x.columns; ++c) sums[std::size_t(c)] += double(host(r * x.stride + c));
    mean_.clear();
    for (const double sum : sums) mean_.push_back(float(sum / double(x.rows)));
  }
  void gradients_are_reduced() override {}
  std::vector<float> take() {
    ensure(!mean_.empty(), "no activation has the name {}", name_);
    return std::move(mean_);
  }

 private:
  Device& device_;
  std::string name_;
  std::vector<float> mean_;
};

TextVectors::TextVectors(const ModelConfig& model, Grid& grid, const Fill& fill, Index most_tokens)
    : width_(model.hidden_size), timers_(engine_timer_names()) {
  require_encoder(model);
  const EngineConfig config = config_of(model, most_tokens);
  const Capacity capacity = predicted_capacity(config, grid.layout(), grid.position());
  engine_ = std::make_unique<Engine>(config, grid, &capacity, timers_);
  fill(engine_->stage());
  means_ = std::make_unique<Means>(engine_->device(), last_norm(model));
  engine_->set_hook(means_.get());
}

TextVectors::~TextVectors() = default;

std::vector<float> TextVectors::operator()(std::span<const Token> text) {
  const auto length = Index(text.size());
  ensure(length > 0 && length <= engine_->config().seq_length, "a text of {} tokens, but the maximum is {}", length, engine_->config().seq_length);
  MicroBatch batch{1, length, {text.begin(), text.end()}, std::vector<Token>(text.size(), ignored_label), {}};
  batch.lengths = {length};
  engine_->scores([&](int) { return batch; }, 1);
  return means_->take();
}

}  // namespace gyr
