// SPDX-License-Identifier: BSD-3-Clause
// Objectives that tell which of some classes a text, or each of its tokens, belongs to. Classes are numbers from 0 on, and have names.
#pragma once

#include "modules/objective.hpp"
#include "modules/vocabulary_head.hpp"

namespace gyr {

inline constexpr Index most_classes = Index(1) << 20;  // exact in every scalar that logits have

// The token of a text that it is classified by.
enum class Pool { first, last };

// LABEL_0, LABEL_1, ... as Hugging Face calls those that nobody named.
std::vector<std::string> numbered_classes(Index count);

std::shared_ptr<const Objective> classify(std::vector<std::string> names, Pool pool = Pool::first);
std::shared_ptr<const Objective> tag(std::vector<std::string> names);

// What both declare in their section: names of the classes, or how many there are; where nothing is said, those of `otherwise`, which is null where
// the run begins with another objective.
std::vector<std::string> read_classes(Section&, const Objective* otherwise);
// A classifier's columns. Exit::config naming the section's keys where there are not two of them.
Output output_of_classes(const Objective&, const ModelConfig&);

}  // namespace gyr
