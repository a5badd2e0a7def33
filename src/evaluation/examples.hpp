// SPDX-License-Identifier: BSD-3-Clause
// Examples from JSONL files, and texts with a continuation as passages.
#pragma once

#include <functional>

#include "src/evaluation/evaluation.hpp"

namespace gyr {

// What separates words; ASCII alone.
inline constexpr std::string_view white_space = " \t\n\v\f\r";

// Visits the JSON object of every line that is not blank, up to `limit` of them (0: all), with its place "FILE:LINE". Exit::missing;
// Exit::data with the place where a line is no JSON object, or where there is none.
void visit_examples(const std::filesystem::path& file, Index limit, const std::function<void(const Json&, const std::string& place)>& visit);

// The value under `key`, of the type wanted; Exit::data naming place and key.
const std::string& text_under(const Json& object, const char* key, const std::string& place);

// Context and continuation as tokens, of which the continuation's are to be predicted.
//   White space at the end of the context moves to the continuation. With c = encode(context), the continuation's tokens are those of
//   encode(context + continuation) after the first |c|; they follow c itself. An empty context is settings.begin. What is too long for the
//   window loses tokens at its left.
struct Continued {
  Passage passage;
  Index tokens;  // of the continuation
  bool cut;      // lost some of its context
};

// Exit::data naming the place where the continuation has no token or does not fit into the window, or the context is empty and there is
// no settings.begin.
Continued continued(std::string context, std::string continuation, const TextSettings&, const std::string& place);

// tokenizer.encode, with every token inside the model's vocabulary; Exit::data naming the place.
std::vector<Token> encoded(const std::string& text, const TextSettings&, const std::string& place);

}  // namespace gyr
