// SPDX-License-Identifier: BSD-3-Clause
// Converts a tokenizer to the keys of llama.cpp: tokens with their types, merges, the name of the pre-tokenizer, and
// special tokens.
#pragma once

#include <string>

#include "src/gguf/architecture.hpp"
#include "src/huggingface/companions.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr::gguf {

struct VocabularySource {
  const Tokenizer& tokenizer;
  std::string name;                 // file name of the tokenizer, for messages
  std::string rule;                 // llama.cpp's name of the pre-tokenizer; empty: detected from the tokenizer
  Companions companions;            // tokenizer_config.json and the chat template, if they exist
  const HuggingFaceConfig& config;  // config.json's settings: vocabulary size, and end tokens that the companions do not give
};

// Sets the keys tokenizer.*, of a byte-level BPE (llama.cpp's "gpt2") or a SentencePiece-style one ("llama"). Exit::data
// for other tokenizers, for more tokens than the model has, and for a pre-tokenizer or merges that llama.cpp cannot
// represent. `note` reports where llama.cpp behaves differently.
void put_vocabulary(const VocabularySource&, Index vocab_size, Keys&, const Note& note);
// Keys of a file without a tokenizer. llama.cpp then reads and writes token ids only.
void put_no_vocabulary(Keys&);

// llama.cpp's name of the tokenizer's pre-tokenizer; empty if llama.cpp has no equivalent.
std::string split_rule_of(const Vocabulary&);

}  // namespace gyr::gguf
