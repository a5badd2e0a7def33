// SPDX-License-Identifier: BSD-3-Clause
// A tokenizer as llama.cpp reads it: tokens with their kinds, merges, the name of the rule that splits text, and which tokens are special.
#pragma once

#include <string>

#include "src/gguf/architecture.hpp"
#include "src/huggingface/companions.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr::gguf {

struct VocabularySource {
  const Tokenizer& tokenizer;
  std::string name;                 // of its file
  std::string rule;                 // llama.cpp's name of the rule that splits text; empty: the one that the tokenizer's is
  Companions companions;            // tokenizer_config.json and the chat template, where they are
  const HuggingFaceConfig& config;  // begin and end tokens, where the companions do not say
};

// Keys tokenizer.*. Exit::data where it is no byte-level tokenizer, has more tokens than the model or splits text by a rule that llama.cpp does not
// know; `note` is told what llama.cpp does otherwise.
void put_vocabulary(const VocabularySource&, Index vocab_size, Keys&, const Note& note);
// Of a file without one: llama.cpp then takes and gives ids alone.
void put_no_vocabulary(Keys&);

// What llama.cpp calls the rule by which the tokenizer splits text; empty where it knows none such.
std::string split_rule_of(const Vocabulary&);

}  // namespace gyr::gguf
