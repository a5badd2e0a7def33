// SPDX-License-Identifier: BSD-3-Clause
// The class of each token that has one: a matrix with a bias behind the last norm.
#include "modules/classes.hpp"

namespace gyr {

namespace {

template <class T>
using TagHead = FrontedHead<T, FinalNorm>;

class Tag final : public Objective {
 public:
  explicit Tag(std::vector<std::string> names) : names_(std::move(names)) {}
  const char* name() const override { return "tag"; }
  const std::vector<std::string>& classes() const override { return names_; }
  Labelled label(const SampleView& s) const override {
    ensure(s.classes.size() == s.tokens.size(), "{} tokens with {} classes", s.tokens.size(), s.classes.size());
    return {{s.tokens.begin(), s.tokens.end() - 1}, {s.classes.begin(), s.classes.end() - 1}};
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter*, Parameters& parameters) const override {
    return make_typed<Head, TagHead>(parameters.dtype(), c, LossTerms(), output_of_classes(*this, c), parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(names_.size()); }

 private:
  std::vector<std::string> names_;
};

std::shared_ptr<const Objective> read_tag(Section& train, const Objective& otherwise) {
  return tag(read_classes(train.section("tag", "classes of tokens"), dynamic_cast<const Tag*>(&otherwise)));
}

const RegisteredObjective here({"tag", "the class of each token", read_tag});

}  // namespace

std::shared_ptr<const Objective> tag(std::vector<std::string> names) { return std::make_shared<const Tag>(std::move(names)); }

}  // namespace gyr
