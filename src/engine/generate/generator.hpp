// SPDX-License-Identifier: BSD-3-Clause
// Continues prompts token by token: a prompt is read at once, by the kernels of training, then as many sequences as there is room for advance
// together, each with its own past. Where one ends the next prompt takes its place.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "src/engine/model/stage.hpp"
#include "src/engine/step/graph_replay.hpp"

namespace gyr {

struct Sampling {
  double temperature = 1;  // 0: always the most likely token
  Index top_k = 0;         // only the k most likely; 0: all
  double top_p = 1;        // of these, only the most likely tokens, up to the one with which they reach p of their mass
  std::uint64_t seed = 1;
  Index tokens = 100;  // at most so many new ones
};

// The token drawn from one row of logits; `stream` and `index` name the random number, so that a draw does not depend on the layout.
// Of equal logits the lower token counts as the likelier one: at temperature 0, and at the borders of top_k and top_p.
Token sample_token(std::span<const double> logits, const Sampling&, const Stream& stream, Index index);

// Told each new token of a sequence; returns whether the sequence is finished.
using Finished = std::function<bool(Index sequence, Token token)>;

// What a generator has memory for.
struct GeneratorCapacity {
  Index sequences = 1;      // that advance together
  std::set<Index> prompts;  // their lengths
  Index tokens = 0;         // new ones of each
  Factors factors = Factors::stored;
};

// What took how long.
struct GeneratorPace {
  Index prompt_tokens = 0, new_tokens = 0;  // a prompt's first new token comes with its reading
  double prompt_seconds = 0, new_seconds = 0;
};

class Generator {
 public:
  // The grid's tensor and pipeline axes share the model.
  Generator(const ModelConfig&, DType, Grid&, GeneratorCapacity);

  Stage& stage() { return *stage_; }
  // New tokens of every prompt, the same on every rank and whichever others advance with it, up to rounding where these are more than few_rows.
  // `finished` is asked on every rank and must answer the same.
  std::vector<std::vector<Token>> generate(const std::vector<std::vector<Token>>& prompts, const Sampling&, const Finished&);
  const GeneratorPace& pace() const { return pace_; }
  // Graphs that it has captured: one for each number of sequences that have advanced together twice, where the device has graphs and all layers here
  // tell it the same from token to token.
  Index graphs() const;
  // Bytes this rank holds.
  Index bytes() const;

 private:
  class Continuation;
  // Behind an encoder, which reads the prompt, a text begins with one token.
  Index capacity() const { return (encodes_ ? 1 : *room_.prompts.rbegin()) + room_.tokens; }
  Index source_capacity() const { return encodes_ ? *room_.prompts.rbegin() : 0; }
  // Reads a prompt into sequence number `at`: what advance says of its last token, or of the first one that is written behind an encoder.
  std::vector<double> read(Index at, std::span<const Token> prompt);
  void make(bool dry_run, Index scratch, Index slot, Index state);
  // Reads new tokens of some sequences. On the last stage: logits of the whole vocabulary for the last token of each, (sequences,
  // vocab_size) row by row; elsewhere none.
  std::vector<double> advance(const SequenceLayout&, std::span<const Token>, const GivenText& source = {});
  std::vector<double> gather_logits(const AnyTensor2& mine);
  // What this stage makes of what it has been brought; logits on the last one alone.
  struct Made {
    Bundle output = {};
    AnyTensor2 logits = {};
  };
  Made compute();
  // The same, by a graph where there is one.
  Made replay_decode(Index sequences);
  // What one token each of so many sequences takes.
  struct Repeated {
    GraphReplay work;
    const void* tokens = nullptr;  // where its kernels find them
    Made made = {};
  };
  // What the last stage says, told to every stage.
  std::vector<Token> broadcast_from_last_stage(const std::vector<Token>&);

  ModelConfig config_;
  bool encodes_;
  DType dtype_;
  Grid& grid_;
  GeneratorCapacity room_;
  GeneratorPace pace_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Arena> weights_, none_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StateStore> state_;
  bool repeats_ = false;                // beside a rehearsal
  std::map<Index, Repeated> repeated_;  // by sequences
};

}  // namespace gyr
