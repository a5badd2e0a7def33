// SPDX-License-Identifier: BSD-3-Clause
// Keys of prompts, responses and messages in well-known data sets of JSON lines (Alpaca, ShareGPT, OpenAI).
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace gyr {

// Options of data build that name the prompt and the response of an object; empty if no known pair of keys is there.
// `has`: function of a key that returns true if the object has it.
template <class Has>
std::string prompt_options(const Has& has) {
  using Pair = std::pair<const char*, const char*>;
  for (const auto& [prompt, response] : {Pair{"prompt", "response"}, Pair{"instruction", "output"}, Pair{"prompt", "completion"},
                                         Pair{"instruction", "response"}, Pair{"question", "answer"}, Pair{"query", "response"},
                                         Pair{"question", "response"}, Pair{"prompt", "answer"}, Pair{"input", "output"}, Pair{"inputs", "targets"}})
    if (has(prompt) && has(response)) return fmt::format("--prompt-key {} --response-key {}", prompt, response);
  return "";
}

// The same for a list of messages.
template <class Has>
std::string message_options(const Has& has) {
  return has("conversations") ? "--messages-key conversations --role-key from --content-key value --assistant gpt" : "";
}

}  // namespace gyr
