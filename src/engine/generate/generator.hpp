// SPDX-License-Identifier: BSD-3-Clause
// Text generation. A prompt is read in one pass by the kernels of training (prefill). Then sequences are decoded
// together, one token per pass, each with its own KV cache and SSM state. When a sequence ends, the next prompt takes
// its slot: an entry of the state store.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "src/engine/model/stage.hpp"
#include "src/engine/step/graph_replay.hpp"

namespace gyr {

struct Sampling {
  double temperature = 1;  // divisor of the logits; 0: greedy, always the most likely token
  Index top_k = 0;         // sample only from the k most likely tokens; 0: from all
  double top_p = 1;        // nucleus sampling: of these, only the most likely tokens whose probabilities add up to p
  std::uint64_t seed = 1;
  Index tokens = 100;  // maximum number of new tokens per sequence
};

// Draws a token from one row of logits. `stream` and `index` identify the random number, so that a draw does not depend
// on the layout. Of equal logits the lower token id counts as more likely: at temperature 0, and at the limits of top_k
// and top_p.
Token sample_token(std::span<const double> logits, const Sampling&, const Stream& stream, Index index);

// Called with each new token of a sequence. Returns true if the sequence is finished.
using Finished = std::function<bool(Index sequence, Token token)>;

// Limits that a generator allocates memory for.
struct GeneratorCapacity {
  Index sequences = 1;      // maximum number of sequences that are decoded together
  std::set<Index> prompts;  // all prompt lengths that occur, in tokens
  Index tokens = 0;         // maximum number of new tokens of each sequence
  Factors factors = Factors::stored;
};

// Tokens processed, and the time that took: prompts (prefill) and new tokens (decode).
struct GeneratorPace {
  Index prompt_tokens = 0, new_tokens = 0;  // a prompt's first new token belongs to its prefill
  double prompt_seconds = 0, new_seconds = 0;
};

class Generator {
 public:
  // The grid's tensor and pipeline axes partition the model.
  Generator(const ModelConfig&, DType, Grid&, GeneratorCapacity);

  Stage& stage() { return *stage_; }
  // Returns the new tokens of every prompt, the same on every rank. They do not depend on the sequences that are
  // decoded together, except for rounding if there are more than few_rows. `finished` is called on every rank and must
  // return the same on each.
  std::vector<std::vector<Token>> generate(const std::vector<std::vector<Token>>& prompts, const Sampling&, const Finished&);
  const GeneratorPace& pace() const { return pace_; }
  // Number of captured CUDA graphs: one for each number of sequences that were decoded together at least twice. None if
  // the device has no graphs, or if a layer of this stage launches other kernels from token to token.
  Index graphs() const;
  // Bytes of device memory that this rank holds.
  Index bytes() const;

 private:
  class Continuation;
  // Maximum tokens of a sequence. In an encoder-decoder model the encoder reads the prompt, and the text begins with
  // one token.
  Index capacity() const { return (encodes_ ? 1 : *limits_.prompts.rbegin()) + limits_.tokens; }
  Index source_capacity() const { return encodes_ ? *limits_.prompts.rbegin() : 0; }
  // Prefill: reads a prompt into sequence `at`. Returns the logits of its last token, or with an encoder of the start
  // token, as advance does.
  std::vector<double> read(Index at, std::span<const Token> prompt);
  void make(bool dry_run, Index scratch, Index slot, Index state);
  // Reads new tokens of some sequences. The last stage returns logits over the full vocabulary for the last token of
  // each, (sequences, vocab_size) row by row; the other stages return nothing.
  std::vector<double> advance(const SequenceLayout&, std::span<const Token>, const GivenText& source = {});
  std::vector<double> gather_logits(const AnyTensor2& mine);
  // Output of this stage for the tokens in its slot; logits only on the last stage.
  struct Made {
    Bundle output = {};
    AnyTensor2 logits = {};
  };
  Made compute();
  // The same as compute, replayed as a CUDA graph if one was captured.
  Made replay_decode(Index sequences);
  // Decode pass for a fixed number of sequences, captured as a CUDA graph: one token per sequence.
  struct Repeated {
    GraphReplay work;
    const void* tokens = nullptr;  // address of the token ids that the kernels of the graph read
    Made made = {};
  };
  // Sends the tokens drawn on the last stage to every stage.
  std::vector<Token> broadcast_from_last_stage(const std::vector<Token>&);

  ModelConfig config_;
  bool encodes_;
  DType dtype_;
  Grid& grid_;
  GeneratorCapacity limits_;
  GeneratorPace pace_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Arena> weights_, none_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StateStore> state_;
  bool repeats_ = false;                // true: CUDA graphs may be used; false in a dry run
  std::map<Index, Repeated> repeated_;  // captured decode passes, by number of sequences
};

}  // namespace gyr
