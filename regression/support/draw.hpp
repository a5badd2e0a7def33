// SPDX-License-Identifier: BSD-3-Clause
// A random model, batch and layout for property tests, so that no error can hide behind shapes that a person picked. A
// draw is a function of (seed, number). A failing draw is simplified as long as it still fails.
#pragma once

#include "modules/objectives/classes.hpp"
#include "modules/objectives/multi_token.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr::testing {

struct Draw {
  ModelConfig model;
  int data = 1, pipeline = 1, context = 1, tensor = 1;
  int expert = 1;                                // expert-parallel ranks, among the data x context ranks
  std::vector<Axis> order;                       // order of the axes in the rank numbering; empty: default
  SequenceOrder tokens = SequenceOrder::zigzag;  // order of tokens on context-parallel ranks
  ContextMode context_mode = ContextMode::ring;
  int attention_ranks = 0;          // tensor-parallel ranks that compute the attention of hybrid blocks; 0: all ranks compute both mixers
  bool sequence = false;            // sequence parallelism
  int chunks = 1;                   // chunks (virtual stages) per pipeline rank; more than one means an interleaved schedule
  std::vector<Index> chunk_begins;  // first layer of every chunk except the first
  std::vector<int> permutation;     // permutation of the ranks; empty: none
  enum Kind { one_forward_one_backward, all_forward, zero_bubbles } schedule = one_forward_one_backward;  // schedule for one chunk per rank
  Index micro_batch_size = 1, seq_length = 1;
  Index source_length = 0;    // tokens of the encoder input; 0: the model has no encoder
  bool padded = false;        // encoder inputs have different lengths and are padded
  int micros = 1;             // micro-batches per data-parallel rank
  bool packed = false;        // sequences are packed with documents of random lengths
  bool some_ignored = false;  // some labels are ignored
  Index distinct_tokens = 0;  // number of different tokens, so that router weights of equal tokens tie; 0: any
  Index bucket_bytes = 1;
  Shard shard = Shard::none;
  RecomputeConfig recompute;
  OffloadConfig offload;
  LossTerms terms;                // label smoothing, z loss and entropy bonus
  MultiToken ahead = {0, "", 1};  // multi-token prediction (MTP), if depths > 0
  double beta = 0;                // preference objective (DPO) on pairs of documents, if above 0
  bool masked = false;            // masked language modelling
  double masked_fraction = 1;     // masked: largest fraction of tokens that are masked
  bool head_bias = true;
  bool ordered = false;  // masked: sentence-order prediction too
  Index classes = 0;     // classes of texts, or of tokens if `tagged`; 0: no classification
  bool tagged = false;
  Pool pool = Pool::first;
  ClassFront front = ClassFront::usual;
  std::vector<std::string> frozen;
  Fp8Recipe fp8 = Fp8Recipe::none;
  bool rounds_other_values = false;  // FP8 rounds other values or blocks than on one rank, so that results differ

  int ranks() const { return data * pipeline * context * tensor; }
  Layout layout() const;
  ModelConfig full_model() const;  // model with the objective
  EngineConfig config(int micros_of_a_rank) const;
  // Micro-batch number i of the step, independent of the rank that computes it.
  MicroBatch batch(Index i) const;
  std::shared_ptr<const Objective> objective() const;
  std::string layout_text() const;
  std::string text() const;  // one line of text, including the layout
};

// A draw on at most `most_ranks` ranks. Five successive draws share a layout. A few draws cannot be sharded; they test
// the error. With `context`, there are that many context-parallel ranks and few others: a draw without it seldom has more
// than two.
Draw draw(std::uint64_t seed, Index number, int most_ranks, int context = 0);

// All slightly simpler variants of a draw, the largest simplifications first.
std::vector<Draw> simpler(const Draw&);

}  // namespace gyr::testing
