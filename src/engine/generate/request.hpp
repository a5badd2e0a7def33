// SPDX-License-Identifier: BSD-3-Clause
// Interface of generation (service.hpp): requests, the rule by which tokens are drawn, and replies.
//
// A draw is a function of the seed, the request's id, the number of the sample and the position of the token. A text
// therefore does not depend on the requests that are served together, on their order, or on the data-parallel rank that
// serves it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kernels/device/random.hpp"
#include "kernels/ops/embedding.hpp"

namespace gyr {

// How tokens are drawn, and when a text ends.
struct Sampling {
  double temperature = 1;     // divisor of the logits; 0: greedy, always the most likely token
  Index top_k = 0;            // sample only from the k most likely tokens; 0: from all
  double top_p = 1;           // nucleus sampling: of these, only the most likely tokens whose probabilities add up to p
  std::uint64_t seed = 1;     // seed of all draws
  Index tokens = 100;         // maximum number of new tokens of a text
  std::set<Token> ends = {};  // tokens that end a text; they belong to it
  // true: decode blocks of at most few_rows texts (gemm.hpp), so that in fp32 and bf16 no bit depends on the number of
  // texts in progress. false: decode all of them in one pass, which is faster.
  bool exact = false;
  // Draws of policy training. true: random streams have the names "rollout ID/SAMPLE", and draws from the full vocabulary
  // are Gumbel-max draws (token_draw.hpp). false: the names are "sequence ID" and, from the second sample on,
  // "sequence ID/SAMPLE", and one number of the stream selects the token in the order of likelihood.
  bool rollouts = false;
};

// A prompt and the number of texts that continue it. The prompt is read once, however many texts there are.
struct Request {
  Index id = 0;               // key of the draws; unique among the requests of a call
  std::vector<Token> prompt;  // at least one token, at most GeneratorCapacity::prompt
  Index samples = 1;          // number of texts, at most GeneratorCapacity::samples
};

// Tokens [first, last) of a text, a chunk, and the chunks of the database that were found for it (layers R).
struct CitedChunk {
  Index first, last;
  std::vector<std::int64_t> ids;
};

// Reason for the end of a text: not ended, a token of Sampling::ends, TextHooks::stops, or Sampling::tokens.
enum class TextEnd { none, end, stop, length };

// Text number `sample` of request `id`. The three lists have an element per new token.
struct GeneratedText {
  Index id = 0, sample = 0;
  std::vector<Token> tokens = {};
  // Natural logarithm of the token's probability when it was drawn, under softmax(logits / temperature) over the full
  // vocabulary, whatever top_k and top_p leave out. At temperature 0: under softmax(logits).
  std::vector<double> log_probs = {};
  std::vector<double> kept = {};  // probability of all tokens that top_k and top_p keep, at most 1
  TextEnd end = TextEnd::none;
  // Chunks with neighbours, of the prompt and of the text. Only on the ranks of the data coordinate that served the text.
  std::vector<CitedChunk> cited = {};
};

// A text as numbers, for messages between ranks: its length and end, then token, log-probability and kept probability of each
// position. text_of_values advances `from` to the values after it.
void append_values(const GeneratedText&, std::vector<double>& values);
GeneratedText text_of_values(Index id, Index sample, const double*& from);

// Functions that are called on every rank of the data coordinate that serves a text, and must have the same result on
// each; empty: none. stops: called after each new token that does not end the text, returns true if the text ends here.
// done: called once when the text has ended.
struct TextHooks {
  std::function<bool(const GeneratedText&)> stops = {};
  std::function<void(const GeneratedText&)> done = {};
};

// Random number of a token: number `position` of the stream with this seed and hash of a name (random.hpp).
struct DrawPlace {
  double uniform = 0;
  std::uint64_t seed = 0, stream = 0;
  Index position = 0;
};

// Random stream of a text.
class TextStream {
 public:
  TextStream(const Sampling&, Index id, Index sample);
  DrawPlace at(Index position) const { return {stream_.uniform(position), seed_, name_, position}; }

 private:
  TextStream(std::uint64_t seed, const std::string& name) : stream_(seed, name), seed_(seed), name_(hash_of(name)) {}
  Stream stream_;
  std::uint64_t seed_, name_;
};

}  // namespace gyr
