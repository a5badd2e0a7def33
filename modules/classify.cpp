// SPDX-License-Identifier: BSD-3-Clause
// The class of a text, told by one of its tokens: BERT's pooler, a linear layer and tanh, in front of a matrix with a bias. Every row passes through
// both, and those without a label take no part in the loss.
#include "modules/classes.hpp"
#include "modules/dense.hpp"

namespace gyr {

namespace {

// y = tanh(h w' + b), h the stream behind its last norm.
template <class T>
class Pooler {
 public:
  Pooler(const ModelConfig& c, Parameters& parameters) : last_(c, parameters), dense_(c, "pooler.dense", Activation::tanh, parameters) {}

  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> x) { return dense_.forward(a, frame, last_.forward(a, frame, x)); }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dx) {
    Scope scope(a.dev.scratch);
    const auto dh = a.scratch<T>("gradient of pooled", Index(dx.extent(0)), Index(dx.extent(1)));
    dense_.backward(a, frame, dy, dh);
    last_.backward(a, frame, dh, dx);
  }

 private:
  FinalNorm<T> last_;
  Dense<T> dense_;
};

template <class T>
using TextClassHead = FrontedHead<T, Pooler>;

class Classify final : public Objective {
 public:
  Classify(std::vector<std::string> names, Pool pool) : names_(std::move(names)), pool_(pool) {}
  const char* name() const override { return "classify"; }
  const std::vector<std::string>& classes() const override { return names_; }
  Pool pool() const { return pool_; }
  Labelled label(const SampleView&) const override;
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter*, Parameters& parameters) const override {
    return make_typed<Head, TextClassHead>(parameters.dtype(), c, LossTerms(), output_of_classes(*this, c), parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(Index(names_.size()) + c.hidden_size); }

 private:
  std::vector<std::string> names_;
  Pool pool_;
};

// A text ends where the next one begins, or with what is read.
Labelled Classify::label(const SampleView& s) const {
  const Index length = Index(s.tokens.size()) - 1;
  Labelled l{{s.tokens.begin(), s.tokens.end() - 1}, std::vector<Token>(length, ignored_label)};
  ensure(Index(s.classes.size()) == length + 1, "{} tokens with {} classes", length + 1, s.classes.size());
  for (Index t = 0; t < length; ++t) {
    if (s.classes[t] == ignored_label) continue;
    Index at = t;
    if (pool_ == Pool::last)
      while (at + 1 < length && (s.positions.empty() || s.positions[at + 1] > s.positions[at])) ++at;
    l.labels[at] = s.classes[t];
  }
  return l;
}

std::shared_ptr<const Objective> read_classify(Section& train, const Objective& otherwise) {
  const auto* const before = dynamic_cast<const Classify*>(&otherwise);
  Section& s = train.section("classify", "classes of texts");
  std::vector<std::string> names = read_classes(s, before);
  auto pool = s.get("pool", before && before->pool() == Pool::last ? "last" : "first", "token of a text that it is classified by")
                  .one_of({"first", "last"})
                  .effect(Effect::function);
  return classify(std::move(names), pool.value() == "last" ? Pool::last : Pool::first);
}

const RegisteredObjective here({"classify", "the class of each text", read_classify});

}  // namespace

std::shared_ptr<const Objective> classify(std::vector<std::string> names, Pool pool) {
  return std::make_shared<const Classify>(std::move(names), pool);
}

}  // namespace gyr
