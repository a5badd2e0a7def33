// SPDX-License-Identifier: BSD-3-Clause
// llama.cpp's tokenizer "llama" (SentencePiece BPE): of all adjacent pairs whose joined text is a token, it merges the
// one with the highest score first, and of equal scores the leftmost. It has no list of merges, no normalizer and no
// pre-tokenizer. Spaces are spelt U+2581, and characters without a token become byte tokens.
#pragma once

#include <string>
#include <vector>

#include "src/base/note.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr::gguf {

struct SentencePieceRule {
  std::vector<float> scores;  // [id]
  bool space_prefix;          // a space is inserted before a text and after each special token
};

// The scores with which llama.cpp merges like `vocabulary`, a BPE whose tokens are text. Exit::data with `name` (the
// tokenizer's file) and the feature if llama.cpp would give other ids. `note` reports smaller differences.
SentencePieceRule sentencepiece_rule_of(const Vocabulary& vocabulary, const std::string& name, const Note& note);

}  // namespace gyr::gguf
