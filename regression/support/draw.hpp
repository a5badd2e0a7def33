// SPDX-License-Identifier: BSD-3-Clause
// A model, a batch and a layout drawn at random, so that a class of mistakes cannot hide behind shapes that somebody picked. A draw is a
// function of (seed, number); one that fails is made smaller as long as it still fails.
#pragma once

#include "modules/objectives/classes.hpp"
#include "modules/objectives/multi_token.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr::testing {

struct Draw {
  ModelConfig model;
  int data = 1, pipeline = 1, context = 1, tensor = 1;
  int expert = 1;                                // of data x context, which deal experts
  std::vector<Axis> order;                       // of the axes, or none
  SequenceOrder tokens = SequenceOrder::zigzag;  // on context ranks
  ContextMode context_mode = ContextMode::ring;
  int attention_ranks = 0;       // of the tensor axis, where mixers of hybrid blocks are apart
  bool sequence = false;         // tensor ranks keep shares of the stream
  int chunks = 1;                // of every pipeline rank; several are interleaved
  std::vector<Index> cuts;       // first layer of every chunk but the first
  std::vector<int> permutation;  // or none
  enum Kind { one_forward_one_backward, all_forward, zero_bubbles } schedule = one_forward_one_backward;  // of one chunk
  Index micro_batch_size = 1, seq_length = 1;
  Index source_length = 0;    // of what an encoder reads; 0: the model has none
  bool padded = false;        // sources of several lengths
  int micros = 1;             // per data rank
  bool packed = false;        // every sequence holds other documents
  bool some_ignored = false;  // labels that are not learned
  Index bucket_bytes = 1;
  Shard shard = Shard::none;
  RecomputeConfig recompute;
  OffloadConfig offload;
  LossTerms terms;                // smoothing, or none
  MultiToken ahead = {0, "", 1};  // tokens further ahead are told ...
  double beta = 0;                // or pairs of documents are compared; 0: they are not
  bool masked = false;            // the objective is masked tokens ...
  double share = 1;               // ... so many of all, at most
  bool head_bias = true;
  bool ordered = false;  // and whether halves stand in their order
  Index classes = 0;     // or so many of texts or, `tagged`, of tokens; 0: none
  bool tagged = false;
  Pool pool = Pool::first;
  ClassFront front = ClassFront::usual;
  std::vector<std::string> frozen;

  int ranks() const { return data * pipeline * context * tensor; }
  Layout layout() const;
  ModelConfig whole_model() const;  // with the objective
  EngineConfig config(int micros_of_a_rank) const;
  // Micro-batch number i of the step, whoever computes it.
  MicroBatch batch(Index i) const;
  std::shared_ptr<const Objective> objective() const;
  std::string layout_text() const;
  std::string text() const;  // on one line, with the layout's
};

// At most `most_ranks`; five after one another have the layout in common. Nearly all can be sharded; the others are for the refusal.
Draw draw(std::uint64_t seed, Index number, int most_ranks);

// Every way to make it a little smaller or plainer; the boldest first.
std::vector<Draw> simpler(const Draw&);

}  // namespace gyr::testing
