// SPDX-License-Identifier: BSD-3-Clause
// Texts that a generator produces for prompts, with ids 0, 1, 2 ... in their order.
#pragma once

#include "src/engine/generate/service.hpp"

namespace gyr::testing {

inline std::vector<Request> requests_of(const std::vector<std::vector<Token>>& prompts, Index samples = 1) {
  std::vector<Request> requests;
  for (const auto& prompt : prompts) requests.push_back({Index(requests.size()), prompt, samples});
  return requests;
}

// Maximum number of tokens of a prompt.
inline Index longest_of(const std::vector<std::vector<Token>>& prompts) {
  Index most = 1;
  for (const auto& prompt : prompts) most = std::max(most, Index(prompt.size()));
  return most;
}

// New tokens of every prompt. `finished` is called with each new token of a text, and returns true if the text ends.
inline std::vector<std::vector<Token>> texts_of(Generator& generator, const std::vector<std::vector<Token>>& prompts, const Sampling& sampling,
                                                const std::function<bool(Index, Token)>& finished = {}) {
  TextHooks hooks;
  if (finished) hooks.stops = [&](const GeneratedText& reply) { return finished(reply.id, reply.tokens.back()); };
  std::vector<std::vector<Token>> texts;
  for (GeneratedText& reply : GenerationService(generator).serve(requests_of(prompts), sampling, hooks)) texts.push_back(std::move(reply.tokens));
  return texts;
}

}  // namespace gyr::testing
