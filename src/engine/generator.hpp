// SPDX-License-Identifier: BSD-3-Clause
// Continues prompts token by token: prompts are read one by one, then all sequences advance together, each with its own past.
#pragma once

#include <functional>

#include "src/engine/stage.hpp"

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

class Generator {
 public:
  // Room for `sequences` sequences of at most `capacity` tokens each, prompts of at most `prompt` tokens. The grid's tensor and pipeline
  // axes share the model.
  Generator(const ModelConfig&, DType, Grid&, Index sequences, Index prompt, Index capacity);

  Stage& stage() { return *stage_; }
  // New tokens of every prompt, the same on every rank. `finished` is asked on every rank and must answer the same.
  std::vector<std::vector<Token>> generate(const std::vector<std::vector<Token>>& prompts, const Sampling&, const Finished&);
  // Bytes this rank holds.
  Index bytes() const;

 private:
  void make(bool dry_run, Index scratch, Index slot, Index state);
  // Reads new tokens of some sequences. On the last stage: logits of the whole vocabulary for the last token of each, (sequences,
  // vocab_size) row by row; elsewhere none.
  std::vector<double> advance(const SequenceLayout&, std::span<const Token>);
  std::vector<double> whole_rows(const AnyTensor2& mine);
  // What the last stage says, told to every stage.
  std::vector<Token> from_last_stage(const std::vector<Token>&);

  ModelConfig config_;
  DType dtype_;
  Grid& grid_;
  Index sequences_, prompt_, capacity_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Arena> weights_, none_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StateStore> state_;
};

}  // namespace gyr
