// SPDX-License-Identifier: BSD-3-Clause
// Examples from JSONL files, and passages made of a context and a continuation.
#pragma once

#include <functional>

#include "src/evaluation/evaluation.hpp"

namespace gyr {

// Characters that separate words; ASCII only.
inline constexpr std::string_view white_space = " \t\n\v\f\r";

// Calls `visit` with the JSON object of every line that is not blank and its place "FILE:LINE", for at most `limit`
// lines (0: all). Exit::missing; Exit::data with the place if a line is not a JSON object, or if the file has no
// example.
void visit_examples(const std::filesystem::path& file, Index limit, const std::function<void(const Json&, const std::string& place)>& visit);

// String under `key`; Exit::data with place and key if there is none.
const std::string& text_under(const Json& object, const char* key, const std::string& place);

// Context and continuation as tokens; the continuation's tokens are to be predicted.
//   White space at the end of the context moves to the continuation. With c = encode(context), the continuation's tokens are those of
//   encode(context + continuation) after the first |c|; they follow c. An empty context becomes settings.begin. A passage that is too long for the
//   window loses its first tokens.
struct Continued {
  Passage passage;
  Index tokens;    // number of tokens of the continuation
  bool truncated;  // true if some of the context was removed
};

// Exit::data with the place if the continuation has no token or does not fit into the window, or if the context is
// empty and settings.begin is not set.
Continued continued(std::string context, std::string continuation, const TextSettings&, const std::string& place);

// Result of tokenizer.encode; Exit::data with the place if a token is outside the model's vocabulary.
std::vector<Token> encoded(const std::string& text, const TextSettings&, const std::string& place);

}  // namespace gyr
