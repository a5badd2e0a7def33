// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/multi_token.hpp"

#include "modules/layers/embedding.hpp"
#include "modules/layers/mtp_module.hpp"
#include "modules/objectives/future_tokens.hpp"
#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

namespace {

template <class T>
std::vector<MtpModule<T>> make_modules(const ModelConfig& c, const MultiToken& m, Parameters& parameters) {
  std::vector<MtpModule<T>> modules;
  for (Index k = 0; k < m.depths; ++k) modules.emplace_back(c, fmt::format("mtp.{}", k), m.pattern, parameters);
  return modules;
}

// Head that declares the final norm, the MTP modules and the output matrix, in this order. The embedding matrix follows
// if it is neither on this stage nor tied to the output matrix. Forward and backward of the MTP modules run before the
// forward of the main head, so that their activations are already freed then.
template <class T>
class MultiTokenHead final : public VocabularyHead<T> {
 public:
  MultiTokenHead(const ModelConfig& c, const MultiToken& m, Parameter* table, Parameters& parameters)
      : MultiTokenHead(c, m, FinalNorm<T>(c, parameters), table, parameters) {}

  void loss(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<double> sum, ObjectiveScores* scores) override {
    this->score(a, front_.forward(a, frame, x.as<T>()), labels, {}, sum, scores);
  }
  void loss_and_gradient(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<const double> scales,
                         Tensor1<double> sums) override {
    mtp_loss_and_gradient(a, frame, x.as<T>(), labels, scales, sums);
    const Tensor2<T> h = front_.forward(a, frame, x.as<T>());
    frame.refer(gradient, h);
    this->score(a, h, {labels.of_rows}, rows(scales, 0, 1), rows(sums, 0, 1), nullptr);
  }
  void backward(Pass& a, Frame& frame, const AnyTensor2& dx) override {
    front_.backward(a, frame, frame.get(gradient), dx.as<T>());
    add<T>(a.dev, flat(frame.get(gradient_ahead)), flat(dx.as<T>()));
  }
  void predict(Pass& a, Frame& frame, const AnyTensor2& x, const AnyTensor2& logits) override {
    this->logits_of(a, front_.forward(a, frame, x.as<T>()), logits.as<Acc<T>>());
  }
  Parameter& table() override { return *table_; }

 private:
  MultiTokenHead(const ModelConfig& c, const MultiToken& m, FinalNorm<T> front, Parameter* table, Parameters& parameters)
      : MultiTokenHead(c, std::move(front), make_modules<T>(c, m, parameters), table, parameters) {}
  MultiTokenHead(const ModelConfig& c, FinalNorm<T> front, std::vector<MtpModule<T>> modules, Parameter* table, Parameters& parameters)
      : VocabularyHead<T>(c, output_of_tokens(c, c.tie_word_embeddings ? table : nullptr), nullptr, parameters), front_(std::move(front)),
        modules_(std::move(modules)), table_(c.tie_word_embeddings ? &this->w_ : table) {
    if (table_) return;
    table_ = &declare_table_of_first_stage(c, parameters);
  }

  // Adds the losses of all MTP depths to `sums`, and stores their gradient with respect to x in the frame.
  void mtp_loss_and_gradient(Pass& a, Frame& frame, Tensor2<T> x, const Labels& labels, Tensor1<const double> scales, Tensor1<double> sums) {
    const int depths = int(modules_.size());
    ensure(int(scales.extent(0)) == 1 + depths, "{} loss scales for {} MTP modules", scales.extent(0), depths);
    const auto dh = frame.put(gradient_ahead, x.extent(0), x.extent(1));
    for (int k = 0; k < depths; ++k) x = modules_[k].forward(a, frame.nested(k, "depth"), *table_, labels.values.at(mtp_tokens(1 + k)), x);
    for (int k = depths; k-- > 0;) {
      Frame& inner = frame.nested(k);
      const Tensor2<T> h = modules_[k].normed(a, inner);
      this->score(a, h, {labels.values.at(mtp_labels(1 + k))}, rows(scales, 1 + k, 1), rows(sums, 1 + k, 1), nullptr);
      modules_[k].normed_backward(a, inner, h, k == depths - 1 ? Add::no : Add::yes, dh);
      modules_[k].backward(a, inner, *table_, dh);
      inner.release(Phase::weight_gradients);
    }
  }

  static constexpr Key<Tensor2<T>> gradient{"gradient of the norm output"}, gradient_ahead{"gradient of the MTP losses"};
  FinalNorm<T> front_;
  std::vector<MtpModule<T>> modules_;
  Parameter* table_;
};

class MultiTokenObjective final : public Objective {
 public:
  explicit MultiTokenObjective(const MultiToken& m) : m_(m) {}
  const char* name() const override { return "mtp"; }
  Labelled label(const SampleView& s) const override {
    Labelled l = next_token()->label(s);
    const Index length = Index(l.tokens.size());
    for (Index k = 1; k <= m_.depths; ++k) {
      MtpTargets ahead = future_tokens(k, length, l.tokens, l.labels, s.positions.first(s.positions.empty() ? 0 : length));
      l.values[mtp_tokens(k)] = std::move(ahead.tokens), l.values[mtp_labels(k)] = std::move(ahead.labels);
    }
    return l;
  }
  std::vector<NamedField> fields(const ModelConfig&, Index) const override {
    std::vector<NamedField> all;
    for (Index k = 1; k <= m_.depths; ++k) {
      all.push_back(ValueField<Token>{mtp_tokens(k), 0, 0, 0, ValueReader::training_head});
      all.push_back(ValueField<Token>{mtp_labels(k), ignored_label, 0, 0, ValueReader::training_head});
    }
    return all;
  }
  std::vector<LossSum> losses() const override {
    std::vector<LossSum> all(1);
    for (Index k = 1; k <= m_.depths; ++k) all.push_back({mtp_labels(k), m_.weight / double(m_.depths)});
    return all;
  }
  bool writes_next_token() const override { return true; }
  bool repeats() const override { return true; }
  std::shared_ptr<const Objective> without_training() const override { return next_token(); }
  Index depths() const override { return m_.depths; }
  std::string head_layers() const override {
    std::string layers;
    for (Index k = 0; k < m_.depths; ++k) layers += m_.pattern;
    return layers;
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    return make_typed<Head, MultiTokenHead>(parameters.dtype(), c, m_, table, parameters);
  }
  double flops(const ModelConfig& c) const override {
    const double d = double(c.hidden_size);
    return next_token()->flops(c) * double(1 + m_.depths) + double(m_.depths) * 4 * d * d;
  }
  void check_model(const ModelConfig& c) const override {
    for (const char symbol : m_.pattern) layer_type(symbol);
    const auto border = m_.pattern.find_first_of("X>");
    require(border == std::string::npos, Exit::config,
            "train.mtp.pattern: '{}' needs an encoder, but MTP modules have no encoder output; use other layers",
            m_.pattern[border == std::string::npos ? 0 : border]);
    require(c.attention.relative_bias.buckets == 0, Exit::config,
            "train.objective = mtp does not support model.attention.relative_bias; set its buckets to 0, or train.objective to next_token");
  }
  const MultiToken& settings() const { return m_; }

 private:
  MultiToken m_;
};

std::shared_ptr<const Objective> read_multi_token(Section& train, const ModelConfig& model, const Objective& otherwise) {
  Section& s = train.section("mtp", "multi-token prediction (MTP, DeepSeek-V3)");
  const MultiToken* const before = multi_token_of(otherwise);
  MultiToken m;
  if (before) m = *before;
  m.depths = s.get("depths", m.depths,
                   "MTP depth: number of tokens predicted beyond the next one, each by a module of its own (Megatron: "
                   "mtp_num_layers, Hugging Face: num_nextn_predict_layers)")
                 .at_least(1)
                 .at_most(16)
                 .effect(Effect::function);
  const std::string block = last_block(model.pattern);
  const std::string pattern =
      s.get("pattern", before && !before->usual ? before->pattern : std::string(),
            "layer symbols of each MTP module, as in model.pattern; empty: the model's last token-mixing layer and all layers after it")
          .effect(Effect::function);
  m.usual = pattern.empty() || pattern == block;
  m.pattern = m.usual ? block : pattern;
  m.weight = s.get("weight", m.weight, "MTP loss weight: the mean MTP loss times this is added to the loss (Megatron: mtp_loss_scaling_factor)")
                 .positive()
                 .at_most(1000);
  return multi_token(m);
}

const RegisteredObjective registered_multi_token({"mtp", "multi-token prediction, DeepSeek-V3", read_multi_token});

}  // namespace

std::shared_ptr<const Objective> multi_token(const MultiToken& m) { return std::make_shared<const MultiTokenObjective>(m); }

const MultiToken* multi_token_of(const Objective& objective) {
  const auto* const found = dynamic_cast<const MultiTokenObjective*>(&objective);
  return found ? &found->settings() : nullptr;
}

std::string last_block(const std::string& pattern) {
  const auto mixes = [](char symbol) { return layer_type(symbol).traits.mixes_tokens(); };
  const auto last = std::find_if(pattern.rbegin(), pattern.rend(), mixes);
  std::string block = last == pattern.rend() ? pattern : std::string(last.base() - 1, pattern.end());
  std::erase_if(block, [](char symbol) { return symbol == encoder_end || symbol == tower_end || layer_type(symbol).traits.reads_source(); });
  return block;
}

}  // namespace gyr
