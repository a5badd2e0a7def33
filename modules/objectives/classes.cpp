// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/classes.hpp"

#include <algorithm>
#include <set>

namespace gyr {

std::vector<std::string> numbered_classes(Index count) {
  std::vector<std::string> names;
  for (Index i = 0; i < count; ++i) names.push_back(fmt::format("LABEL_{}", i));
  return names;
}

std::vector<std::string> read_classes(Section& s, const Objective* otherwise) {
  auto labels = s.get("labels", otherwise ? otherwise->classes() : std::vector<std::string>(), "class names, in the order of their ids (id2label)")
                    .effect(Effect::function);
  const std::vector<std::string> names = labels.value();
  labels.must("names that differ", std::set<std::string>(names.begin(), names.end()).size() == names.size())
      .must(fmt::format("at most {} names", most_classes), Index(names.size()) <= most_classes)
      .value();
  auto count = s.get("num_labels", 0, "number of classes, if labels does not name them; 0: the number of labels")
                   .at_least(0)
                   .at_most(most_classes)
                   .effect(Effect::function);
  const Index number = count;
  const bool agree = number == 0 || names.empty() || !s.given("labels") || number == Index(names.size());
  count.must(names.empty() ? std::string("any number, as labels names none") : fmt::format("0 or {}, the number of labels", names.size()), agree)
      .value();
  return number > 0 && number != Index(names.size()) ? numbered_classes(number) : names;
}

std::vector<Record> ClassObjective::predict(const SampleView& s, const Labelled& l, std::span<const RowScore> scores) const {
  std::vector<Record> records;
  for (const TextSpan& text : s.texts)
    for (Index r = text.first; r < std::min(text.first + text.count, Index(l.labels.size())); ++r)
      if (l.labels[r] != ignored_label)
        records.push_back({{"text", Index(text.number)},
                           {"token", r - text.first},
                           {"class", names_.at(std::size_t(scores[r].likeliest))},
                           {"label", names_.at(std::size_t(l.labels[r]))},
                           {"loss", scores[r].loss}});
  return records;
}

ClassFront front_of(const Objective& objective) {
  const auto* const classes = dynamic_cast<const ClassObjective*>(&objective);
  return classes ? classes->front() : ClassFront::usual;
}

ClassFront read_front(Section& s, const char* usual, const Objective* otherwise) {
  const std::vector<std::string> words{usual, "transform", "transform_no_bias"};
  const std::string word = s.get("head", words[std::size_t(otherwise ? front_of(*otherwise) : ClassFront::usual)],
                                 "layers before the classifier matrix; transform: a linear layer with or without bias, the MLP's activation and "
                                 "a norm (ModernBERT)")
                               .one_of(words)
                               .effect(Effect::function);
  return ClassFront(std::find(words.begin(), words.end(), word) - words.begin());
}

Output output_of_classes(const Objective& objective, const ModelConfig& c) {
  const Index classes = Index(objective.classes().size());
  require(classes >= 2, Exit::config,
          "train.objective = {0}: there are {1} classes, at least 2 are needed; name them in train.{0}.labels, or give their number as "
          "train.{0}.num_labels",
          objective.name(), classes);
  return {.name = "classifier", .columns = classes, .bias = true, .scored = true, .dropped = c.dropout.head, .terms = c.loss_terms};
}

}  // namespace gyr
