// SPDX-License-Identifier: BSD-3-Clause
// A run as its deck describes it: the sections that others declare, and what they must not say together.
#pragma once

#include <map>

#include "modules/model/layer.hpp"
#include "src/checkpoint/checkpoint_config.hpp"
#include "src/config/train_config.hpp"
#include "src/data/data_config.hpp"
#include "src/deck/deck.hpp"
#include "src/dump/dump_config.hpp"
#include "src/engine/config/learning_rate.hpp"
#include "src/engine/config/offload_config.hpp"
#include "src/engine/config/optimizer_config.hpp"
#include "src/engine/config/recompute.hpp"
#include "src/fault/fault_settings.hpp"
#include "src/parallel/layout.hpp"
#include "src/parallel/parallel_config.hpp"
#include "src/supervisor/supervise_settings.hpp"
#include "src/trace/trace_config.hpp"
#include "src/watch/watch_settings.hpp"

namespace gyr {

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  LearningRate lr;
  ParallelConfig parallel;
  RecomputeConfig recompute;
  OffloadConfig swap;
  Index device_bytes = 0;  // that a rank may take of its device's memory; 0: as many as there are
  CheckpointConfig checkpoint;
  DumpConfig dump;
  TraceConfig trace;
  WatchSettings watch;
  FaultSettings fault;
  SuperviseSettings supervise;
  std::string output;

  // Of text and source that samples of train.seq_length tokens make.
  TextLengths lengths() const;
  // Choices of experts in a step of so many sequences, in all layers; 0 where experts have room for all.
  double limited_choices(Index batch) const;
  // Largest global batch of the run, in sequences.
  Index largest_batch() const;
  // The first of `batch` samples to take where `first` is the next: behind those to be skipped that it would touch.
  static Index next_sample(Index first, Index batch, const std::vector<Span>& skip);
  // Sequences of the step that begins after `tokens` consumed tokens.
  Index batch_after(double tokens) const;
};

// What keys are where the deck says nothing: the published 0.5B's shape, or a model that exists already.
struct RunDefaults {
  RunDefaults();
  ModelConfig model;
  std::string tokenizer, precision = "fp32";
  Index seq_length = 1024;
};

// Declares and reads every key of a run; the deck still has to be finished by the caller.
RunConfig read_run_config(Deck& deck, const RunDefaults& = {});
// Exit::config where a run would read padding as text. For runs that begin: what was trained so before is still read.
void check_padding(const RunConfig&);
// What the deck sets, to another value than the usual, for another objective than the run's to read: a sentence each. Exit::config where it does not
// name the run's. For runs that begin.
std::vector<std::string> idle_keys(const Deck&, const RunConfig&);
// train.init_from alone, which decides about the defaults of the others.
std::string read_init_from(Deck& deck);

// Heads, groups and channels that are sharded over the tensor axis, by deck key: the number of ranks must divide each or be a multiple of it.
// Those of hybrid blocks' mixers are not where these are apart.
std::map<std::string, Index> sharded_units(ModelConfig, bool separate_mixers = false);

// The layout of a run on `ranks` ranks. Exit::config with the rule that the deck breaks, and the nearest grids that would work.
Layout layout_of(const RunConfig&, int ranks);

}  // namespace gyr
