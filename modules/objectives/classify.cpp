// SPDX-License-Identifier: BSD-3-Clause
// Objective classify: the class of a document, predicted from one of its tokens or from their mean. Every row passes
// through the head; rows without a label do not enter the loss.
#include <algorithm>

#include "modules/objectives/classes.hpp"
#include "modules/objectives/text_front.hpp"

namespace gyr {

namespace {

template <class T>
using TextClassHead = FrontedHead<T, TextFront>;

class Classify final : public ClassObjective {
 public:
  Classify(std::vector<std::string> names, Pool pool, ClassFront front) : ClassObjective(std::move(names), front), pool_(pool) {}
  const char* name() const override { return "classify"; }
  Pool pool() const { return pool_; }
  Labelled label(const SampleView&) const override;
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter*, Parameters& parameters) const override {
    return make_typed<Head, TextClassHead>(parameters.dtype(), c, output_of_classes(*this, c), parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(Index(classes().size()) + c.hidden_size); }

 private:
  Pool pool_;
};

// A document ends where the next one begins, or with the sample. With mean pooling, all its rows hold the mean, and the
// first one has the label.
Labelled Classify::label(const SampleView& s) const {
  const Index length = Index(s.tokens.size()) - 1;
  Labelled l{{s.tokens.begin(), s.tokens.end() - 1}, std::vector<Token>(length, ignored_label)};
  ensure(Index(s.classes.size()) == length + 1, "sample of {} tokens with {} class labels", length + 1, s.classes.size());
  for (Index t = 0; t < length; ++t) {
    if (s.classes[t] == ignored_label) continue;
    Index at = t;
    if (pool_ == Pool::last)
      while (at + 1 < length && (s.positions.empty() || s.positions[at + 1] > s.positions[at])) ++at;
    l.labels[at] = s.classes[t];
  }
  return l;
}

std::shared_ptr<const Objective> read_classify(Section& train, const ModelConfig&, const Objective& otherwise) {
  const auto* const before = dynamic_cast<const Classify*>(&otherwise);
  Section& s = train.section("classify", "classification of documents");
  std::vector<std::string> names = read_classes(s, before);
  const std::vector<std::string> words{"first", "last", "mean"};
  const std::string pool = s.get("pool", words[std::size_t(before ? before->pool() : Pool::first)],
                                 "pooling (classifier_pooling): a document's first token, its last token, or the mean over its tokens")
                               .one_of(words)
                               .effect(Effect::function);
  const ClassFront front = read_front(s, "pooler", before);
  return classify(std::move(names), Pool(std::find(words.begin(), words.end(), pool) - words.begin()), front);
}

const RegisteredObjective registered_classify({"classify", "class of each document", read_classify});

}  // namespace

std::optional<Pool> pool_of(const Objective& objective) {
  const auto* const classifier = dynamic_cast<const Classify*>(&objective);
  return classifier ? std::optional(classifier->pool()) : std::nullopt;
}

std::shared_ptr<const Objective> classify(std::vector<std::string> names, Pool pool, ClassFront front) {
  return std::make_shared<const Classify>(std::move(names), pool, front);
}

}  // namespace gyr
