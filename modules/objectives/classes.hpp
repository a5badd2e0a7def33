// SPDX-License-Identifier: BSD-3-Clause
// Objectives that tell which of some classes a text, or each of its tokens, belongs to. Classes are numbers from 0 on, and have names.
#pragma once

#include "modules/objectives/objective.hpp"
#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

inline constexpr Index most_classes = Index(1) << 20;  // exact in every scalar that logits have

// What of a text it is classified by: a token, or the mean over all of them.
enum class Pool { first, last, mean };

// What stands in front of a classifier's matrix: BERT's pooler for texts and nothing for tokens, or ModernBERT's transform (transform.hpp), with a
// bias or without.
enum class ClassFront { usual, transform, transform_no_bias };

// LABEL_0, LABEL_1, ... as Hugging Face calls those that nobody named.
std::vector<std::string> numbered_classes(Index count);

std::shared_ptr<const Objective> classify(std::vector<std::string> names, Pool pool = Pool::first, ClassFront front = ClassFront::usual);
std::shared_ptr<const Objective> tag(std::vector<std::string> names, ClassFront front = ClassFront::usual);
std::optional<Pool> pool_of(const Objective&);  // nothing of one that does not classify texts
ClassFront front_of(const Objective&);          // usual of one that tells no classes

// What both are.
class ClassObjective : public Objective {
 public:
  ClassObjective(std::vector<std::string> names, ClassFront front) : names_(std::move(names)), front_(front) {}
  const std::vector<std::string>& classes() const override { return names_; }
  // Of every row with a label: its text and the token of it, the class it was taken for, and its own.
  bool predicts() const override { return true; }
  std::vector<Record> predict(const SampleView&, const Labelled&, std::span<const RowScore>) const override;
  ClassFront front() const { return front_; }

 private:
  std::vector<std::string> names_;
  ClassFront front_;
};

// What both declare in their section: names of the classes, or how many there are; where nothing is said, those of `otherwise`, which is null where
// the run begins with another objective.
std::vector<std::string> read_classes(Section&, const Objective* otherwise);
ClassFront read_front(Section&, const char* usual, const Objective* otherwise);  // the word for the usual one
// A classifier's columns. Exit::config naming the section's keys where there are not two of them.
Output output_of_classes(const Objective&, const ModelConfig&);

}  // namespace gyr
