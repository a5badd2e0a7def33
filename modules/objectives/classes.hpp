// SPDX-License-Identifier: BSD-3-Clause
// Classification objectives: a class for each document (classify) or for each token (tag). Classes are numbered from 0
// and have names.
#pragma once

#include "modules/objectives/objective.hpp"
#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

inline constexpr Index most_classes = Index(1) << 20;  // limit on classes: ids up to this are exact in fp32 and fp64 logits

// Pooling of a document that is classified: its first token, its last token, or the mean over all of its tokens.
enum class Pool { first, last, mean };

// Layers before the classifier matrix. usual: BERT's pooler for documents, nothing for tokens. Otherwise ModernBERT's
// transform (transform.hpp), with or without bias.
enum class ClassFront { usual, transform, transform_no_bias };

// LABEL_0, LABEL_1, ..., Hugging Face's default names of classes.
std::vector<std::string> numbered_classes(Index count);

std::shared_ptr<const Objective> classify(std::vector<std::string> names, Pool pool = Pool::first, ClassFront front = ClassFront::usual);
std::shared_ptr<const Objective> tag(std::vector<std::string> names, ClassFront front = ClassFront::usual);
std::optional<Pool> pool_of(const Objective&);  // empty for objectives other than classify
ClassFront front_of(const Objective&);          // ClassFront::usual for objectives without classes

// Common base of the objectives classify and tag.
class ClassObjective : public Objective {
 public:
  ClassObjective(std::vector<std::string> names, ClassFront front) : names_(std::move(names)), front_(front) {}
  const std::vector<std::string>& classes() const override { return names_; }
  // One record for every row with a label: document, token in the document, predicted class, true class and loss.
  bool predicts() const override { return true; }
  std::vector<Record> predict(const SampleView&, const Labelled&, std::span<const RowScore>) const override;
  ClassFront front() const { return front_; }

 private:
  std::vector<std::string> names_;
  ClassFront front_;
};

// Keys that classify and tag have in common: class names, or the number of classes. Defaults are those of `otherwise`,
// the objective of the model that the run starts from; null if that model was trained for another objective.
std::vector<std::string> read_classes(Section&, const Objective* otherwise);
ClassFront read_front(Section&, const char* usual, const Objective* otherwise);  // `usual`: deck word for ClassFront::usual
// Output matrix of the classifier, with one column per class. Exit::config naming the section's keys if there are fewer
// than two classes.
Output output_of_classes(const Objective&, const ModelConfig&);

}  // namespace gyr
