// SPDX-License-Identifier: BSD-3-Clause
// Objective tag (token classification): a matrix with a bias after the final norm, or after the transform of
// masked-token heads.
#include "modules/layers/transform.hpp"
#include "modules/objectives/classes.hpp"

namespace gyr {

namespace {

template <class T>
class TagFront {
 public:
  TagFront(const ModelConfig& c, Parameters& parameters) : last_(c, parameters) {
    const ClassFront front = front_of(*c.objective);
    if (front != ClassFront::usual) transform_.emplace(c, "classifier", front == ClassFront::transform, parameters);
  }
  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> x) {
    const auto h = last_.forward(a, frame, x);
    return transform_ ? transform_->forward(a, frame, h) : h;
  }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dx) {
    if (!transform_) return last_.backward(a, frame, dy, dx);
    Scope scope(a.dev.scratch);
    const auto dh = a.scratch<T>("gradient of the norm output", Index(dx.extent(0)), Index(dx.extent(1)));
    transform_->backward(a, frame, dy, dh);
    last_.backward(a, frame, dh, dx);
  }

 private:
  FinalNorm<T> last_;
  std::optional<Transform<T>> transform_;
};

template <class T>
using TagHead = FrontedHead<T, TagFront>;

class Tag final : public ClassObjective {
 public:
  using ClassObjective::ClassObjective;
  const char* name() const override { return "tag"; }
  Labelled label(const SampleView& s) const override {
    ensure(s.classes.size() == s.tokens.size(), "{} tokens, but {} class labels", s.tokens.size(), s.classes.size());
    return {{s.tokens.begin(), s.tokens.end() - 1}, {s.classes.begin(), s.classes.end() - 1}};
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter*, Parameters& parameters) const override {
    return make_typed<Head, TagHead>(parameters.dtype(), c, output_of_classes(*this, c), parameters);
  }
  double flops(const ModelConfig& c) const override {
    return 2.0 * double(c.hidden_size) * double(Index(classes().size()) + (front() == ClassFront::usual ? 0 : c.hidden_size));
  }
};

std::shared_ptr<const Objective> read_tag(Section& train, const ModelConfig&, const Objective& otherwise) {
  Section& s = train.section("tag", "token classification");
  const auto* const before = dynamic_cast<const Tag*>(&otherwise);
  std::vector<std::string> names = read_classes(s, before);
  return tag(std::move(names), read_front(s, "matrix", before));
}

const RegisteredObjective registered_tag({"tag", "token classification", read_tag});

}  // namespace

std::shared_ptr<const Objective> tag(std::vector<std::string> names, ClassFront front) {
  return std::make_shared<const Tag>(std::move(names), front);
}

}  // namespace gyr
